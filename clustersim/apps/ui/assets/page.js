window.dash_clientside = Object.assign({}, window.dash_clientside, {
  clustersim: {
    // The address always is the link, and going there again changes nothing.
    address: function (link) {
      if (link && link.startsWith("#scenario=")) {
        window.history.replaceState(window.history.state, "", link);
      }
      return window.dash_clientside.no_update;
    },
    copy: function (clicks, link) {
      if (!clicks) {
        return "";
      }
      var text = window.location.origin + window.location.pathname + link;
      if (navigator.clipboard) {
        navigator.clipboard.writeText(text).catch(function () {});
        return "copied";
      }
      return "copy the address of this page";
    },
    // Readers of the screen are told which inputs are wrong, and where that is said.
    mark: function () {
      document.querySelectorAll(".field .error").forEach(function (error) {
        var input = document.getElementById(error.id.replace(/-error$/, ""));
        if (!input) {
          return;
        }
        if (error.textContent) {
          input.setAttribute("aria-invalid", "true");
          input.setAttribute("aria-describedby", error.id);
        } else {
          input.removeAttribute("aria-invalid");
          input.removeAttribute("aria-describedby");
        }
      });
      return window.dash_clientside.no_update;
    },
  },
});
