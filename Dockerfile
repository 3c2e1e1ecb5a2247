# The operator's image, in several sizes:
#   make image                     profiles, maintenances, notices that people make
#   make image TARGET=aws          the same, and what AWS announces
#   make image TARGET=oci          the same, and what Oracle Cloud Infrastructure announces
#   make image TARGET=openstack    the same, and nodes of Kubernikus
#   make image TARGET=vsphere      the same, and nodes on ESX hosts
# Packages come from the locks in requirements/, as wheels and with their hashes; nothing is compiled here.

ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS wheel
WORKDIR /source
COPY requirements/build.txt requirements/
RUN python -m pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m hatchling build -t wheel -d /wheel

# Where an image's packages are put together: pip and what is only needed to install stay behind.
FROM python:${PYTHON} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_REQUIRE_VIRTUALENV=0
RUN python -m venv --without-pip /opt/haulout
COPY requirements/run.txt requirements/aws.txt requirements/oci.txt requirements/openstack.txt requirements/vsphere.txt \
        /requirements/
COPY tools/sbom.py /opt/haulout/sbom.py

FROM packages AS base-packages
RUN python -m pip --python /opt/haulout/bin/python install --require-hashes --only-binary :all: -r /requirements/run.txt
COPY --from=wheel /wheel /wheel
RUN python -m pip --python /opt/haulout/bin/python install --no-deps --no-index /wheel/*.whl \
    && /opt/haulout/bin/python -m compileall -q -j 0 /opt/haulout/lib \
    && /opt/haulout/bin/python /opt/haulout/sbom.py > /opt/haulout/sbom.cdx.json

# An SDK is thousands of files, of which we load some: only these are compiled.
FROM base-packages AS aws-packages
RUN python -m pip --python /opt/haulout/bin/python install --no-compile --require-hashes --only-binary :all: \
        -r /requirements/aws.txt \
    && /opt/haulout/bin/python -c "import boto3, botocore.config, botocore.exceptions" \
    && /opt/haulout/bin/python /opt/haulout/sbom.py > /opt/haulout/sbom.cdx.json

FROM base-packages AS oci-packages
RUN python -m pip --python /opt/haulout/bin/python install --no-compile --require-hashes --only-binary :all: \
        -r /requirements/oci.txt \
    && /opt/haulout/bin/python -c "import oci.auth.signers, oci.core, oci.streaming" \
    && /opt/haulout/bin/python /opt/haulout/sbom.py > /opt/haulout/sbom.cdx.json

FROM base-packages AS openstack-packages
RUN python -m pip --python /opt/haulout/bin/python install --no-compile --require-hashes --only-binary :all: \
        -r /requirements/openstack.txt \
    && /opt/haulout/bin/python -c "import openstack.connection, openstack.compute.v2._proxy" \
    && /opt/haulout/bin/python /opt/haulout/sbom.py > /opt/haulout/sbom.cdx.json

FROM base-packages AS vsphere-packages
RUN python -m pip --python /opt/haulout/bin/python install --no-compile --require-hashes --only-binary :all: \
        -r /requirements/vsphere.txt \
    && /opt/haulout/bin/python -c "import pyVmomi.SoapAdapter; pyVmomi.vim.VirtualMachine, pyVmomi.vim.HostSystem" \
    && /opt/haulout/bin/python /opt/haulout/sbom.py > /opt/haulout/sbom.cdx.json

FROM python:${PYTHON} AS runtime
LABEL org.opencontainers.image.title="Haulout" \
      org.opencontainers.image.description="Node maintenance for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/haulout/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /
USER 65532:65532
EXPOSE 8080 8081 8443 9443
ENTRYPOINT ["haulout"]
CMD ["run"]

FROM runtime AS aws
COPY --from=aws-packages /opt/haulout /opt/haulout

FROM runtime AS oci
COPY --from=oci-packages /opt/haulout /opt/haulout

FROM runtime AS openstack
COPY --from=openstack-packages /opt/haulout /opt/haulout

FROM runtime AS vsphere
COPY --from=vsphere-packages /opt/haulout /opt/haulout

# The last one is what `docker build .` makes.
FROM runtime AS base
COPY --from=base-packages /opt/haulout /opt/haulout
