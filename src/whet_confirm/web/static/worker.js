// The service worker: shows a request as a notification, acknowledges it, and sends a press on one of its buttons.
"use strict";
const form = (fields) => ({
  method: "POST", credentials: "same-origin", body: new URLSearchParams(fields),
});
// An acknowledgement that does not get through is tried again while the browser lets this worker run.
const acknowledge = async (message, receipt) => {
  const code = (message.receipts || {})[receipt];
  if (!code) return;
  for (const wait of [0, 1000, 4000, 10000]) {
    await new Promise((done) => setTimeout(done, wait));
    try {
      const fields = { device: message.device, request: message.request, receipt, code };
      const answer = await fetch("/push/receipt", form(fields));
      if (answer.status < 500) return;
    } catch { /* the service can't be reached now */ }
  }
};
const show = async (message) => {
  const tag = message.request || "trial"; // a newer message about a request takes the place of the older one
  // A message that came twice, after a crash between the service and the push service, is shown once.
  const before = await self.registration.getNotifications({ tag });
  if (before.some((older) => JSON.stringify(older.data) === JSON.stringify(message))) return;
  await self.registration.showNotification(message.title, {
    body: message.body,
    tag,
    renotify: Boolean(message.is_open),
    silent: !message.is_open && Boolean(message.request),
    requireInteraction: Boolean(message.is_open),
    icon: "/icon-192.png",
    badge: "/icon-192.png",
    data: message,
    actions: (message.actions || []).map(({ action, title }) => ({ action, title })),
  });
};
const open = async (path) => {
  for (const client of await self.clients.matchAll({ type: "window" })) {
    if (new URL(client.url).pathname === path) return client.focus();
  }
  return self.clients.openWindow(path);
};

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));
self.addEventListener("push", (event) => {
  const message = event.data.json();
  event.waitUntil(show(message).then(() => acknowledge(message, "delivered")));
});
// Browsers replace a subscription now and then; messages to the old one are lost from then on.
self.addEventListener("pushsubscriptionchange", (event) => {
  const before = event.oldSubscription;
  if (!before) return; // it can't be said which device this is: its messages fail, and others are asked
  const renew = async () => {
    const now = event.newSubscription || await self.registration.pushManager.subscribe(before.options);
    await fetch("/push/renew", form({ before: before.endpoint, subscription: JSON.stringify(now.toJSON()) }));
  };
  event.waitUntil(renew());
});
self.addEventListener("notificationclose", (event) => {
  event.waitUntil(acknowledge(event.notification.data, "seen"));
});
self.addEventListener("notificationclick", (event) => {
  const message = event.notification.data;
  const chosen = (message.actions || []).find(({ action }) => action === event.action);
  const decide = async () => {
    let text = "Not decided: the service can't be reached.";
    try {
      const answer = await fetch("/push/press", form({ device: message.device, press: chosen.press }));
      text = (await answer.json()).text;
      if (answer.ok) return show({ ...message, title: message.title, body: text, actions: [], is_open: false });
    } catch { /* shown below */ }
    return show({ ...message, body: `${text} Open it to decide.`, actions: [{ action: "open", title: "Open" }] });
  };
  const work = chosen && chosen.press ? decide() : (event.notification.close(), open(message.path || "/"));
  event.waitUntil(Promise.allSettled([work, acknowledge(message, "seen")]));
});
