import { createGroup, deleteGroup, getGroup, listGroups, updateGroup } from "./client";
import { API, HEADERS, walk } from "./walk";

// The functions have relative paths.
const own = globalThis.fetch;
globalThis.fetch = (path, options) => own(`${API}${path}`, options);

const options = { headers: HEADERS };

// The generated URLs do not encode the slashes of uids.
const encoded = encodeURIComponent;

function known<T extends { status: number; data: unknown }>(reply: T): Extract<T, { status: 200 }>["data"] {
  if (reply.status !== 200) throw new Error(JSON.stringify(reply.data));
  return reply.data as Extract<T, { status: 200 }>["data"];
}

await walk({
  create: async (parent, name) => known(await createGroup(encoded(parent), { name }, {}, options)),
  get: async (uid) => known(await getGroup(encoded(uid), {}, options)),
  list: async (name) => known(await listGroups({ name }, options)).groups,
  update: async (uid, description) => known(await updateGroup(encoded(uid), { description }, {}, options)),
  remove: async (uid) => known(await deleteGroup(encoded(uid), {}, options)),
});
