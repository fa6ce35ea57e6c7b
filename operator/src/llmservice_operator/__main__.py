"""`python -m llmservice_operator`: the same as the `llmservice` command."""

import sys

from llmservice_operator.cli import main

if __name__ == "__main__":
    sys.exit(main())
