# syntax=docker/dockerfile:1
# The controller's image, with all programs; `--target initializer` builds that of TrainJobs' initializers and exporters,
# which also has the storage libraries. Built from the lock, with no compiler and no pip cache in the last stages.
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

FROM build AS build-initializer
COPY hack/requirements/initializer.txt ./
RUN /opt/tfjob-controller/bin/pip install --no-cache-dir --no-deps --require-hashes --only-binary :all: \
      -r initializer.txt \
 && /opt/tfjob-controller/bin/python -m compileall -q /opt/tfjob-controller

FROM ${PYTHON_IMAGE} AS initializer
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="tfjob-initializer" \
      org.opencontainers.image.description="Fetches datasets and models for TrainJobs, and sends trained models away" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build-initializer /opt/tfjob-controller /opt/tfjob-controller
USER 65532:65532
ENV PATH=/opt/tfjob-controller/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENTRYPOINT ["tfjob-controller"]
CMD ["initialize", "--help"]

# The last stage is what `docker build` makes unless it is told another.
FROM ${PYTHON_IMAGE} AS controller
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
