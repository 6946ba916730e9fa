// Calls operations of the generated client: one on each line of standard input, its outcome on a line of standard output.

import { createInterface } from 'node:readline';

import { client } from './client/client.gen';
import * as operations from './client/sdk.gen';

client.setConfig({
  baseUrl: process.env.API,
  headers: { Authorization: `Bearer ${process.env.TOKEN}`, Accept: 'application/json' },
});

for await (const line of createInterface({ input: process.stdin })) {
  const { operation, ...options } = JSON.parse(line);
  let outcome;
  try {
    // Replies that are not as the document says make the client throw.
    const { data, error, response } = await (operations as any)[operation]({ client, ...options });
    outcome = response === undefined ? { thrown: String(error) } : { status: response.status, body: data ?? error };
  } catch (thrown) {
    outcome = { thrown: String(thrown) };
  }
  console.log(JSON.stringify(outcome));
}
