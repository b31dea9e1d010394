"""What pyproject.toml cannot say: a wheel also holds the files of the repository that it reads."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Folders of the repository, and where a wheel has them: estimators.py looks for presets, and
# system/files.py for the rest.
SHIPPED = {
    "config/methods": "brio_core/presets",
    "workflow": "brio_core/repository/workflow",
}
# Only a clone can run the workflow.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "Snakefile", "rules", "report")


class BuildWithRepository(build_py):
    """Modules and package data as usual, then these files; an editable install needs no copies."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        root = Path(__file__).resolve().parent
        for folder, place in SHIPPED.items():
            copy = Path(self.build_lib, place)
            shutil.copytree(root / folder, copy, ignore=LEFT_OUT, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithRepository})
