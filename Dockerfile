# A server of artifacts, without torch.
#
#   docker build -t t2t-server .
#   docker run -p 8080:8080 -v $PWD/artifact:/models/artifact:ro t2t-server --artifact=/models/artifact
FROM python:3.12-slim

# What artifacts and the server need, and no more: torch alone would be a hundred times as large.
RUN pip install --no-cache-dir \
    "absl-py>=2.1" "numpy>=2" "onnxruntime>=1.26" "onnxruntime-extensions>=0.14" \
    "pydantic>=2.10" "httptools>=0.6" "prometheus-client>=0.20" "starlette>=0.37" "uvicorn>=0.31" \
    "uvloop>=0.19"
COPY pyproject.toml setup.py README.md LICENSE /source/
COPY t2t_torch /source/t2t_torch
RUN pip install --no-cache-dir --no-deps /source && rm -r /source

# Nothing is written.
USER nobody
EXPOSE 8080
HEALTHCHECK CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/v2/health/live', timeout=2)"]
# SIGTERM, which `docker stop` sends, lets it answer what it has begun.
ENTRYPOINT ["t2t-server", "--host=0.0.0.0", "--port=8080"]
CMD ["--artifact=/models"]
