"""The module that vLLM is started by."""

import sys

from vllm.fake.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
