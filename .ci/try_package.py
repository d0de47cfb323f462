"""Use an installed package as a new user would: README's examples, then the commands.

``python .ci/try_package.py README.md``, in an empty folder.
"""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import combutab

readme = Path(sys.argv[1])
package = Path(combutab.__file__).parent
if readme.parent in package.parents:
    sys.exit(
        f"combutab is imported from the repository, {package}, and not from an installed wheel"
    )
files = {Path(str(file)).name for file in metadata.files("combutab") or ()}
if missing := {"py.typed", "LICENSE"} - files:
    sys.exit(f"the wheel lacks {', '.join(sorted(missing))}")

names: dict[str, object] = {}
for block in re.findall(r"^```python\n(.*?)^```$", readme.read_text("utf-8"), re.DOTALL | re.M):
    exec(compile(block, "README.md", "exec"), names)

command = Path(sys.executable).with_name("combutab")
for options in (
    "--version",
    "compare --seeds 1 --folds 2 --epochs 5 --activations relu,combu",
    "fit --help",
):
    subprocess.run([command, *options.split()], check=True)
print(f"combutab {combutab.__version__} works on Python {sys.version.split()[0]}")
