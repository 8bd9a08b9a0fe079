"""A configuration for one server, without a kubeconfig."""

from __future__ import annotations

from tfjob_controller.kube.config.credentials import AuthInfo, Credentials
from tfjob_controller.kube.config.kubeconfig import Config
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.util.clock import RealClock


def config_for(url: str) -> Config:
    """Returns a configuration for this URL without credentials."""
    return Config(ServerConfig(url), "default", "test", Credentials(AuthInfo, RealClock()))
