# syntax=docker/dockerfile:1
# One image with all programs: tfjob-controller (run, extender, simulate, ...) and kubectl-tfjob. `--target initializer`
# builds that of TrainJobs' initializers and exporters, which also has the storage libraries.
#
# What is installed stands in hack/requirements with its hashes, the tools that build the wheel too. The last stages hold
# neither compiler nor cache, and nothing in them carries the time of the build: see docs/install.md for the rest.
# A digest in the place of the tag pins the base: --build-arg PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.13-slim-trixie
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
# The asynchronous client of `kubernetes` and the tests of packages are a third of the files, and nothing imports them.
FROM ${PYTHON_IMAGE} AS dependencies
WORKDIR /build
COPY hack/requirements/runtime.txt ./
RUN python -m venv --without-pip /opt/tfjob-controller \
 && python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --require-hashes \
      --only-binary :all: -r runtime.txt \
 && rm -r /opt/tfjob-controller/lib/python*/site-packages/kubernetes/aio /opt/tfjob-controller/lib/python*/site-packages/*/tests \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tfjob-controller/lib

# Installed below folders of their own, each of which becomes a layer: the layers of the dependencies stay the same
# from one version of this project to the next.
FROM dependencies AS package
COPY --from=wheel /dist /dist
RUN python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --no-deps --no-index \
      --root /package /dist/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /package -p / /package/opt

FROM dependencies AS storage
COPY hack/requirements/initializer.txt ./
RUN python -m pip --python /opt/tfjob-controller/bin/python install --no-cache-dir --no-compile --no-deps \
      --require-hashes --only-binary :all: --root /storage -r initializer.txt \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s /storage -p / /storage/opt

FROM ${PYTHON_IMAGE} AS base
COPY --from=dependencies /opt/tfjob-controller /opt/tfjob-controller
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

FROM base AS base-initializer
COPY --from=storage /storage/opt/tfjob-controller /opt/tfjob-controller

FROM base-initializer AS initializer
LABEL org.opencontainers.image.title="tfjob-initializer" \
      org.opencontainers.image.description="Fetches datasets and models for TrainJobs, and sends trained models away"
COPY --from=package /package/opt/tfjob-controller /opt/tfjob-controller
CMD ["initialize", "--help"]

# The last stage is what `docker build` makes unless it is told another.
FROM base AS controller
LABEL org.opencontainers.image.title="tfjob-controller" \
      org.opencontainers.image.description="Runs distributed training jobs on Kubernetes"
COPY --from=package /package/opt/tfjob-controller /opt/tfjob-controller
CMD ["run"]
