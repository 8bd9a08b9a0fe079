# syntax=docker/dockerfile:1
# One image with all programs: tfjob-controller (run, extender, simulate, ...) and kubectl-tfjob. `--target initializer`
# builds that of TrainJobs' initializers and exporters, which also has the storage libraries.
#
# What is installed stands in hack/requirements with its hashes, the tools that build the wheel too. The last stages hold
# neither compiler nor cache, and nothing in them carries the time of the build: see docs/install.md for the rest.
# A digest in the place of the tag pins the base: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim-bookworm
# As in setup.cfg: the build fails if they differ.
ARG VERSION=0.1.0

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /build
COPY hack/requirements/build.txt ./
RUN python -m venv --without-pip /opt/tools \
 && python -m pip --python /opt/tools/bin/python install --no-cache-dir --require-hashes --only-binary :all: -r build.txt
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY src ./src
ARG VERSION
# The time that all files in the wheel carry. BuildKit sets it if the variable is set where it is called.
ARG SOURCE_DATE_EPOCH=1767225600
# Modes go into the wheel too, and are whatever the checkout's umask was.
RUN chmod -R u=rwX,go=rX . \
 && python -m pip --python /opt/tools/bin/python wheel --no-cache-dir --no-deps --no-build-isolation -w /dist . \
 && test -f "/dist/tfjob_controller-${VERSION}-py3-none-any.whl"

# No pip in the environment. All is compiled here, never to be compared with its source again: the container cannot write.
FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY hack/requirements/runtime.txt ./
RUN python -m venv --without-pip /opt/tfjob-controller \
 && python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --require-hashes \
      --only-binary :all: -r runtime.txt \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tfjob-controller/lib
COPY --from=wheel /dist /dist
RUN python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --no-deps --no-index \
      /dist/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash \
      /opt/tfjob-controller/lib/python*/site-packages/tfjob_controller

FROM build AS build-initializer
COPY hack/requirements/initializer.txt ./
RUN python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --no-deps \
      --require-hashes --only-binary :all: -r initializer.txt \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tfjob-controller/lib

FROM ${PYTHON_IMAGE} AS base
ARG VERSION
ARG REVISION=""
ARG SOURCE=""
ARG CREATED=""
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.created="${CREATED}"
ENV PATH=/opt/tfjob-controller/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Numeric, so that runAsNonRoot can be checked without looking into the image.
USER 65532:65532
ENTRYPOINT ["tfjob-controller"]

FROM base AS initializer
LABEL org.opencontainers.image.title="tfjob-initializer" \
      org.opencontainers.image.description="Fetches datasets and models for TrainJobs, and sends trained models away"
COPY --from=build-initializer /opt/tfjob-controller /opt/tfjob-controller
CMD ["initialize", "--help"]

# The last stage is what `docker build` makes unless it is told another.
FROM base AS controller
LABEL org.opencontainers.image.title="tfjob-controller" \
      org.opencontainers.image.description="Runs distributed training jobs on Kubernetes"
COPY --from=build /opt/tfjob-controller /opt/tfjob-controller
CMD ["run"]
