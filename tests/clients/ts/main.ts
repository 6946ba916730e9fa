// Calls operations of the generated client: reads one call per line of standard input and prints one outcome per line.

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
    // The client throws on replies that do not match the document.
    const { data, error, response } = await (operations as any)[operation]({ client, ...options });
    outcome = response === undefined ? { thrown: String(error) } : { status: response.status, body: data ?? error };
  } catch (thrown) {
    outcome = { thrown: String(thrown) };
  }
  console.log(JSON.stringify(outcome));
}
