// Reads messages with the TypeScript runtime. Arguments and output: tests/clients/protobuf.py.

import fs from "node:fs";
import { createFileRegistry, equals, fromBinary, fromJsonString, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

const folder = process.argv[2];
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, fs.readFileSync(`${folder}/descriptors.binpb`)));
for (const { name, message, json, binary } of JSON.parse(fs.readFileSync(`${folder}/cases.json`))) {
  const schema = registry.getMessage(message);
  const decoded = fromBinary(schema, Buffer.from(binary, "base64"));
  const read = fromJsonString(schema, json, { registry });
  const equal = equals(schema, decoded, read, { registry, unpackAny: true, unknown: true });
  console.log(JSON.stringify({ name, equal, message: toJson(schema, decoded, { registry }) }));
}
