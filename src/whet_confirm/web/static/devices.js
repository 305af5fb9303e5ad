// Subscribes this browser to push messages: asks for permission, then sends the form with the subscription.
"use strict";
(() => {
  const form = document.querySelector("#subscribe");
  if (!form) return;
  const status = document.querySelector("#subscribe-status");
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const name = () => {
    const system = ["iPhone", "iPad", "Android", "Macintosh", "Windows", "Linux"].find((word) => navigator.userAgent.includes(word));
    const browser = ["Edg", "Firefox", "Chrome", "Safari"].find((word) => navigator.userAgent.includes(word));
    return [browser === "Edg" ? "Edge" : browser, system].filter(Boolean).join(" on ");
  };
  if (!("serviceWorker" in navigator) || !window.PushManager) {
    status.textContent = window.isSecureContext
      ? "This browser takes no push messages here. On an iPhone, add the page to the home screen first and open it there."
      : "Push needs https, or localhost: open the page under its https address.";
    form.querySelector("button").disabled = true;
    return;
  }
  form.elements.label.value ||= name();
  form.addEventListener("submit", async (event) => {
    if (form.elements.subscription.value) return;
    event.preventDefault();
    try {
      const registration = await Page.registerWorker();
      if (await Notification.requestPermission() !== "granted") throw new Error("notifications are not allowed for this page");
      const key = bytes(form.dataset.key);
      const before = await registration.pushManager.getSubscription();
      if (before) await before.unsubscribe(); // it may be for an older key of the service
      const made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
      form.elements.subscription.value = JSON.stringify(made.toJSON());
      form.elements.timezone.value = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
      delete form.dataset.sent; // base.js took the press for the deed
      form.requestSubmit();
    } catch (error) {
      delete form.dataset.sent;
      status.textContent = `Not subscribed: ${error.message}`;
    }
  });
})();
