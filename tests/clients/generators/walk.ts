// Creates a group and reads, lists, updates and deletes it, with the calls of a generated client.

export interface Group {
  uid?: string;
  name?: string;
  description?: string;
}

export interface Calls {
  create(parent: string, name: string): Promise<Group>;
  get(uid: string): Promise<Group>;
  list(name: string): Promise<Group[]>;
  update(uid: string, description: string): Promise<Group>;
  remove(uid: string): Promise<unknown>;
}

export const { API, TOKEN, ORG } = process.env as Record<string, string>;
export const HEADERS = { Authorization: `Bearer ${TOKEN}`, Accept: "application/json" };

function check(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

export async function walk(calls: Calls): Promise<void> {
  const created = await calls.create(ORG, "generated");
  const uid = created.uid ?? "";
  check(created.name === "generated" && uid.startsWith(ORG), "create");
  check((await calls.get(uid)).uid === uid, "get");
  check((await calls.list("generated")).some((group) => group.uid === uid), "list");
  check((await calls.update(uid, "changed")).description === "changed", "update");
  await calls.remove(uid);
  check((await calls.list("generated")).length === 0, "delete");
}
