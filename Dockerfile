# syntax=docker/dockerfile:1
# One image, all programs. Built from the lock, with no compiler and no pip cache in the last stage.
ARG PYTHON_IMAGE=python:3.13-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
RUN python -m venv /opt/tfjob-controller
COPY hack/requirements/runtime.txt ./
RUN /opt/tfjob-controller/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r runtime.txt
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /tmp/build \
 && /tmp/build/bin/pip install --no-cache-dir "setuptools>=75" build \
 && /tmp/build/bin/python -m build --wheel --no-isolation --outdir /tmp/dist \
 && /opt/tfjob-controller/bin/pip install --no-cache-dir --no-deps /tmp/dist/*.whl \
 && /opt/tfjob-controller/bin/python -m compileall -q /opt/tfjob-controller

FROM ${PYTHON_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="tfjob-controller" \
      org.opencontainers.image.description="Runs distributed training jobs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /opt/tfjob-controller /opt/tfjob-controller
# Numeric, so that runAsNonRoot can be checked without looking into the image.
USER 65532:65532
ENV PATH=/opt/tfjob-controller/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["tfjob-controller"]
CMD ["run"]
