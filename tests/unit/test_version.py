"""The version, with and without an installed distribution."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import acquit

# As from a checkout, or a vendored copy: the package is on the path, and no metadata of any distribution are.
WITHOUT_METADATA = """
import sys
from importlib import metadata
found = metadata.Distribution.discover.__func__
metadata.Distribution.discover = classmethod(
    lambda cls, **said: (one for one in found(cls, **said) if one.metadata["Name"] != "acquit")
)
try:
    print(metadata.version("acquit"))
except metadata.PackageNotFoundError:
    print("no metadata")
import acquit
print(acquit.__version__)
from acquit.cli import main
with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
    print(connection.remote_properties["version"])
sys.argv = ["acquit", "--version"]
main()
"""


def test_the_package_knows_its_version() -> None:
    assert acquit.__version__ == metadata.version("acquit")
    assert "__version__" in acquit.__all__


def test_a_copy_that_is_not_installed_works_and_knows_its_version(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_METADATA], capture_output=True, text=True, timeout=100, check=False, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [
        "no metadata",
        acquit.__version__,
        acquit.__version__,
        f"acquit {acquit.__version__}",
    ], done.stderr
