// Fetch a repository of a hub.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rose/serve/http_client.h"

namespace rose::serve {

struct HubFile {
  std::string name;  ///< relative, with no step upwards
  std::string hash;  ///< lower-case hexadecimal: SHA-256 if `large`, else git's blob id
  bool large = false;
  std::uint64_t size = 0;
};

/// A revision of a repository.
struct HubListing {
  std::string commit;  ///< 40 hexadecimal digits
  std::vector<HubFile> files;
};

/// What a hub says of a revision. Throws core::Error (corrupt) that names what is wrong.
HubListing parse_listing(std::string_view text);

/// The files that a model needs: its configuration, its tokenizer, its weights as safetensors. With patterns (`*` stands for anything):
/// those that one of them fits. Throws core::Error (not_found) if nothing is left, or no weights are.
std::vector<HubFile> choose_files(const HubListing& listing,
                                  const std::vector<std::string>& patterns);

/// What is to be fetched, from where to where.
struct PullOptions {
  Url endpoint;
  std::string token{};  ///< empty: none
  std::string repository, revision = "main";
  std::vector<std::string> patterns{};
  std::filesystem::path cache;
  int attempts = 6;  ///< of each file, without a byte in between
  std::chrono::milliseconds first_wait{500}, timeout{30'000};
  std::function<void(std::uint64_t done, std::uint64_t all, const std::string& file)> progress{};
};

/// Brings what is not here yet and returns the folder of the model. Throws core::Error; what had arrived stays, and the next call goes on.
std::filesystem::path pull(const PullOptions& options);

}  // namespace rose::serve
