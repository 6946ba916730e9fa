// Numbers, times and names as people read them.

const NUMBER = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en", { dateStyle: "medium" });
const MINUTE = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export const number = (value) => NUMBER.format(value);
export const day = (time) => DAY.format(new Date(time));
export const minute = (time) => MINUTE.format(new Date(time));

/** Returns a time relative to now, such as "3 hours ago"; a date if it is more than a month away. */
export function relative(time) {
  const seconds = (new Date(time) - Date.now()) / 1000;
  for (const [unit, size, most] of [["second", 1, 60], ["minute", 60, 60], ["hour", 3600, 24], ["day", 86400, 31]]) {
    if (Math.abs(seconds) < size * most) return RELATIVE.format(Math.trunc(seconds / size), unit);
  }
  return day(time);
}

/** Returns a size in bytes with a binary unit. */
export function bytes(value) {
  let size = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024 || unit === "GiB") return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
}

/** Returns a name in camelCase as words: `roleBindings` is "role bindings". */
export function words(name) {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase();
}

export function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

const LABELS = {
  uid: "Uid",
  createTime: "Created",
  updateTime: "Updated",
  deleteTime: "Deleted",
  expirationTime: "Expires",
  leaseExpireTime: "Lease expires",
  lastSeenTime: "Last seen",
  deliveredTime: "Last delivered",
  nextAttemptTime: "Next attempt",
  httpStatus: "HTTP status",
  oidc: "OpenID Connect",
};

/** Returns a field's name as a label: `createTime` is "Created", `identityUid` is "Identity". */
export function label(name) {
  return LABELS[name] ?? capitalized(words(name.replace(/Uid$/, "")));
}

/** Returns the names of an enumeration without the prefix that all of them have. */
export function enumLabels(names) {
  let prefix = names.length > 1 ? names[0] : "";
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  prefix = prefix.slice(0, prefix.lastIndexOf("_") + 1);
  return new Map(names.map((name) => [name, capitalized(name.slice(prefix.length).toLowerCase().replaceAll("_", " "))]));
}

/** Returns the end of a uid, which tells siblings apart. */
export function shortUid(uid) {
  const last = uid.slice(uid.lastIndexOf("/") + 1);
  return last.length > 16 ? `${last.slice(0, 8)}…` : last;
}
