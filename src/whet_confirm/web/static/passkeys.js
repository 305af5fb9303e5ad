// Asks the authenticator before a form that takes a passkey is sent.
"use strict";
(() => {
  const field = document.querySelector("#passkey");
  if (!field || !window.PublicKeyCredential) return;
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const said = document.querySelector("#passkey-said");
  const form = field.form;
  form.addEventListener("submit", async (event) => {
    if (field.value || (event.submitter && event.submitter.value === "deny")) return;
    event.preventDefault();
    if (form.dataset.sent) return; // the authenticator is being asked already
    const submitter = event.submitter;
    const asked = JSON.parse(field.dataset.options);
    asked.challenge = bytes(asked.challenge);
    if (asked.user) asked.user.id = bytes(asked.user.id);
    for (const name of ["allowCredentials", "excludeCredentials"]) {
      for (const one of asked[name] || []) one.id = bytes(one.id);
    }
    try {
      const made = field.dataset.ask === "create"
        ? await navigator.credentials.create({ publicKey: asked })
        : await navigator.credentials.get({ publicKey: asked });
      const given = made.response;
      const response = { clientDataJSON: text(given.clientDataJSON) };
      if (given.attestationObject) response.attestationObject = text(given.attestationObject);
      if (given.authenticatorData) response.authenticatorData = text(given.authenticatorData);
      if (given.signature) response.signature = text(given.signature);
      field.value = JSON.stringify({ id: made.id, rawId: made.id, type: made.type, response });
      delete form.dataset.sent; // base.js took the press for the deed
      form.requestSubmit(submitter);
    } catch (error) {
      delete form.dataset.sent;
      if (said) said.textContent = `The passkey was not used: ${error.message}`;
    }
  });
})();
