"""t2t-eval as a module, for torchrun: python -m t2t_torch.bin.eval."""

import sys

from t2t_torch.bin.commands import COMMANDS

main = COMMANDS["t2t-eval"].main

if __name__ == "__main__":
    sys.exit(main())
