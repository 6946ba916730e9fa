"""Makes records of a security database as vunnel does for grype's database: `secdb.py FOLDER NAMESPACE`.

Reads FOLDER/secdb.json, and writes a file for each vulnerability into FOLDER/secdb. Runs in an environment with vunnel.
"""

import json
import pathlib
import shutil
import sys
import types

from vunnel.providers.wolfi.parser import Parser
from vunnel.schema import OSSchema


class Unknown:
    """Knows no dates of fixes. vunnel downloads them."""

    def best(self, **_: object) -> None:
        return None


class Offline(Parser):
    """Reads the database of the folder, with ids of any database, as later versions of vunnel do."""

    def _download(self) -> None:
        pass

    def build_reference_links(self, vulnerability_id: str) -> list[str]:
        return []


def main() -> None:
    folder, namespace = pathlib.Path(sys.argv[1]), sys.argv[2]
    made = folder / Parser._secdb_dir_
    made.mkdir()
    shutil.copy(folder / "secdb.json", made)
    workspace = types.SimpleNamespace(input_path=str(folder))
    parser = Offline(workspace, url="https://example.com/secdb.json", namespace=namespace, fixdater=Unknown())
    schema = OSSchema().url
    for release, records in parser.get():
        for number, (id, record) in enumerate(records.items()):
            envelope = {"schema": schema, "identifier": f"{namespace}:{release}/{id}", "item": record}
            (made / f"{number}.json").write_text(json.dumps(envelope))
    (made / "secdb.json").unlink()


if __name__ == "__main__":
    main()
