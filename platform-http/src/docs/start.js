// No validator, because that is an external service. Nothing is stored after the page is closed.
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
