import createClient from "openapi-fetch";

import type { paths } from "./client";
import { API, HEADERS, walk } from "./walk";

const client = createClient<paths>({ baseUrl: API, headers: HEADERS });

function known<T>(reply: { data?: T; error?: unknown }): T {
  if (reply.data === undefined) throw new Error(JSON.stringify(reply.error));
  return reply.data;
}

await walk({
  create: async (uid, name) => known(await client.POST("/iam/v2/groups/{uid}", { params: { path: { uid } }, body: { name } })),
  get: async (uid) => known(await client.GET("/iam/v2/groups/{uid}", { params: { path: { uid } } })),
  list: async (name) => known(await client.GET("/iam/v2/groups", { params: { query: { name } } })).groups,
  update: async (uid, description) =>
    known(await client.PATCH("/iam/v2/groups/{uid}", { params: { path: { uid } }, body: { description } })),
  remove: async (uid) => known(await client.DELETE("/iam/v2/groups/{uid}", { params: { path: { uid } } })),
});
