# The fake engine of the tests: Python and a package that looks like vLLM from outside. Any user can run it.
#
#   build context: the repository's root
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE}
COPY tests/fakes/engine /opt/fake-engine
RUN python3 -m compileall -q /opt/fake-engine
ENV PYTHONPATH=/opt/fake-engine \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 2000:2000
EXPOSE 8000
ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server"]
