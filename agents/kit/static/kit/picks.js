// Shows faces where agents are picked, in the order in which they were (agents/admin/picking.py). Loaded before select2 begins.
"use strict";
{
  const $ = django.jQuery;
  const face = (option) => {
    const html = option.html ?? option.element?.dataset.html;
    if (!html) return option.text;
    const line = document.createElement("span");
    line.className = "pl-chip";
    line.innerHTML = html; // made and escaped by the server
    return line;
  };
  $.fn.select2.defaults.set("templateResult", face);
  $.fn.select2.defaults.set("templateSelection", face);
  // An option that stayed would keep its place when it is picked again.
  $(document).on("select2:unselect", "[data-picks]", (event) => event.params.data.element.remove());
}
