// A list of the API's addresses, made from its own description.

const make = (name, text = "", className = "") => Object.assign(document.createElement(name), { textContent: text, className });

function kindOf(schema = {}) {
  const one = schema.anyOf?.find((part) => part.type !== "null") ?? schema;
  const range = one.maximum < 1e9 ? ` ${one.minimum ?? ""}…${one.maximum ?? ""}` : "";
  return `${one.type ?? "value"}${range}${(schema.default ?? []).length !== 0 ? `, default ${schema.default}` : ""}`;
}

function operation(method, path, spec) {
  const article = make("article"), heading = make("h2");
  heading.append(make("span", method.toUpperCase(), "method"), make("code", path));
  article.append(heading, make("p", [spec.summary, spec.description].filter(Boolean).join(". ").replaceAll("`", ""), "note"));
  const rows = (spec.parameters ?? []).map(({ name, schema, description, required }) => [name + (required ? " *" : ""), kindOf(schema), description ?? schema?.description ?? ""]);
  for (const kind of Object.keys(spec.requestBody?.content ?? {})) rows.push(["body", kind, ""]);
  rows.push(["answers", Object.keys(spec.responses).join(", "), ""]);
  const table = make("table");
  for (const row of rows) {
    const line = table.insertRow();
    for (const cell of row) line.insertCell().textContent = cell;
  }
  article.append(table);
  return article;
}

const target = document.getElementById("operations");
try {
  const described = await (await fetch("/api/openapi.json")).json();
  target.replaceChildren(...Object.entries(described.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, spec]) => operation(method, path, spec))));
} catch {
  target.replaceChildren(make("p", "The description could not be read; is the server still running?", "message"));
}
