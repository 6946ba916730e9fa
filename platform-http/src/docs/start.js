// No validator: it would be asked over the network. Nothing is kept when the page is closed.
SwaggerUIBundle({
  url: "{document}",
  dom_id: "#docs",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  defaultModelsExpandDepth: 0,
  persistAuthorization: false,
  queryConfigEnabled: false,
  validatorUrl: null,
});
