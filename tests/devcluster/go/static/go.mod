module llmservice.dev/devcluster/static

go 1.26.0
