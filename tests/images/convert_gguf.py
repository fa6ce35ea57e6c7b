"""Turn the GGUF file of a Python package into a directory of float16 weights, tokenizer and configuration.

Run by the engine's interpreter, whose torch and transformers it uses:
`python convert_gguf.py FOLDER_OF_EXTRA_PACKAGES OUT`.
"""

import json
import os
import sys
from pathlib import Path

# What transformers notes down about the GGUF file; the weights written here are plain.
_NOT_OURS = ("quantization_config", "_name_or_path", "_model_name_or_path", "id2label", "label2id")


def main() -> None:
    """Convert the one GGUF file found under the folder of extra packages."""
    packages, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    sys.path.append(str(packages))
    # Found only now that the path is set, and only by the engine's interpreter.
    import torch  # type: ignore[import-not-found]
    from safetensors.torch import save_file  # type: ignore[import-not-found]
    from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]
    from transformers.utils import logging  # type: ignore[import-not-found]

    logging.disable_progress_bar()
    (source,) = packages.rglob("*.gguf")
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    if not tokenizer.chat_template:
        sys.exit(f"{source.name} has no chat template: the model could not answer chats")

    out.mkdir(parents=True)
    tokenizer.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    # The output layer is the embedding again; the file holds it once.
    tensors = {
        name: tensor.to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = {key: value for key, value in model.config.to_dict().items() if key not in _NOT_OURS}
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "float16", "torch_dtype": "float16"}
    config["rms_norm_eps"] = round(config["rms_norm_eps"], 8)  # a float32 in the GGUF file: 9.999999747e-06
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for path in out.iterdir():
        path.chmod(0o644)  # the engine runs as another user than the one who made the model


if __name__ == "__main__":
    main()
