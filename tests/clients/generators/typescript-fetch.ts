import { Configuration, GroupsServiceApi } from "./client";
import { API, HEADERS, walk } from "./walk";

const groups = new GroupsServiceApi(new Configuration({ basePath: API, headers: HEADERS }));

await walk({
  create: (uid, name) => groups.createGroup({ uid, groupCreate: { name } }),
  get: (uid) => groups.getGroup({ uid }),
  list: async (name) => (await groups.listGroups({ name })).groups,
  update: (uid, description) => groups.updateGroup({ uid, groupUpdate: { description } }),
  remove: (uid) => groups.deleteGroup({ uid }),
});
