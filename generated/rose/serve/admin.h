// Answer an operator.

#pragma once

#include <memory>
#include <string>

#include "rose/serve/api.h"

namespace rose::serve {

struct AdminOptions {
  std::string key_hash;               ///< SHA-256 in hexadecimal; empty: no key is needed
  std::string host;                   ///< of the address
  std::string profiles = "profiles";  ///< the folder for what is recorded
};

/// The handler of the operator's address.
class Admin {
 public:
  Admin(Api& api, std::shared_ptr<AdapterNames> adapters, Backend& backend, AdminOptions options)
      : api_(api),
        adapters_(std::move(adapters)),
        backend_(backend),
        options_(std::move(options)) {}
  void handle(HttpRequest request, const std::shared_ptr<Exchange>& exchange);

 private:
  void check(const HttpRequest& request) const;
  void load(const json::object& body, const std::shared_ptr<Exchange>& exchange);
  void unload(const json::object& body, const std::shared_ptr<Exchange>& exchange);
  void profile(bool start, const std::shared_ptr<Exchange>& exchange);

  Api& api_;
  std::shared_ptr<AdapterNames> adapters_;
  Backend& backend_;
  AdminOptions options_;
};

}  // namespace rose::serve
