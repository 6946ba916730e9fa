"""Reads messages with the Python runtime. Arguments and output: tests/clients/protobuf.py."""

import base64
import json
import pathlib
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

folder = pathlib.Path(sys.argv[1])
pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString((folder / "descriptors.binpb").read_bytes()).file:
    pool.Add(file)
for case in json.loads((folder / "cases.json").read_text()):
    new = message_factory.GetMessageClass(pool.FindMessageTypeByName(case["message"]))
    binary = new.FromString(base64.b64decode(case["binary"]))
    read = json_format.Parse(case["json"], new(), descriptor_pool=pool)
    printed = json_format.MessageToDict(binary, descriptor_pool=pool)
    print(json.dumps({"name": case["name"], "equal": binary == read, "message": printed}))
