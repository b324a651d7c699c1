// Fetch a repository of a hub.

#include "rose/serve/hub.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "rose/core/error.h"
#include "rose/core/files.h"

namespace rose::serve {

namespace fs = std::filesystem;

namespace {

// Hash as the file is known.
class Digest {
 public:
  explicit Digest(const HubFile& file) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    EVP_DigestInit_ex(context_.get(), file.large ? EVP_sha256() : EVP_sha1(), nullptr);
    // git's blobs have their length before their contents, and a zero between
    if (!file.large) update(fmt::format("blob {}", file.size) + std::string(1, '\0'));
  }
  void update(std::string_view bytes) {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), raw.data(), &size);
    std::string out;
    for (unsigned i = 0; i < size; ++i) out += fmt::format("{:02x}", raw.at(i));
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// A file that is on its way.
class Incomplete {
 public:
  Incomplete(fs::path path, const HubFile& file)
      : path_(std::move(path)), file_(file), digest_(file) {
    constexpr int mode = 0644;
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, mode);
    if (descriptor_ < 0) fail("cannot be opened");
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0)
      throw core::Error(core::Code::io, "another program is fetching this file")
          .in(path_.string())
          .hint("wait for it, or end it");
    reread();
  }
  Incomplete(const Incomplete&) = delete;
  Incomplete& operator=(const Incomplete&) = delete;
  ~Incomplete() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  std::uint64_t size() const { return size_; }

  void append(std::string_view bytes) {
    digest_.update(bytes);
    while (!bytes.empty()) {
      const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("cannot be written");
      bytes.remove_prefix(static_cast<std::size_t>(n));
      size_ += static_cast<std::uint64_t>(n);
    }
  }
  void restart() {
    if (::ftruncate(descriptor_, 0) != 0 || ::lseek(descriptor_, 0, SEEK_SET) != 0)
      fail("cannot be emptied");
    size_ = 0;
    digest_ = Digest(file_);
  }
  /// Gives it its final name if it is what it should be; else empties it.
  bool finish(const fs::path& target) {
    if (size_ != file_.size || digest_.hex() != file_.hash) {
      restart();
      return false;
    }
    if (::fsync(descriptor_) != 0) fail("cannot be written");
    fs::rename(path_, target);
    return true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw core::Error(core::Code::io, fmt::format("{}: {}", what, std::strerror(errno)))
        .in(path_.string());
  }
  void reread() {
    std::vector<char> piece(std::size_t{1} << 20);
    for (ssize_t n = 0; (n = ::read(descriptor_, piece.data(), piece.size())) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("cannot be read");
      digest_.update({piece.data(), static_cast<std::size_t>(n)});
      size_ += static_cast<std::uint64_t>(n);
    }
    if (size_ > file_.size) restart();
  }
  fs::path path_;
  const HubFile& file_;
  Digest digest_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Bring one file.
[[noreturn]] void refused(const PullOptions& options, int status, const std::string& what) {
  constexpr int unauthorized = 401, forbidden = 403, missing = 404;
  const bool secret = status == unauthorized || status == forbidden;
  throw core::Error(status == missing ? core::Code::not_found : core::Code::io,
                    fmt::format("the hub answered with status {}", status))
      .in(what)
      .hint(secret ? "HF_TOKEN must be a token of somebody who may read this repository"
            : status == missing
                ? fmt::format("is it '{}', and has it '{}'?", options.repository, options.revision)
                : "");
}

bool passing(int status) {
  constexpr std::array some{408, 429, 500, 502, 503, 504};
  return std::ranges::find(some, status) != some.end();
}

Headers authorization(const PullOptions& options) {
  if (options.token.empty()) return {};
  return {{"authorization", "Bearer " + options.token}};
}

Fetched listing_of(const PullOptions& options, const Url& url) {
  auto wait = options.first_wait;
  for (int left = options.attempts;; wait *= 2) {
    Fetched out =
        fetch(url, {.headers = authorization(options), .timeout = options.timeout, .redirects = 8});
    if (!passing(out.status) || --left <= 0) return out;
    std::this_thread::sleep_for(wait);
  }
}

// One attempt: from where the file ends to where the answer does. Returns the status.
int ask_for_rest(const PullOptions& options, const Url& url, const HubFile& file, Incomplete& part,
                 const std::function<void()>& tell) {
  FetchOptions ask{.headers = authorization(options), .timeout = options.timeout, .redirects = 8};
  if (part.size() > 0) ask.headers.emplace_back("range", fmt::format("bytes={}-", part.size()));
  constexpr int partial = 206;
  const Sink sink{[&](const Fetched& head) {
                    const std::string wanted = fmt::format("bytes {}-", part.size());
                    const bool continues =
                        head.status == partial && head.header("content-range").starts_with(wanted);
                    if (!continues && part.size() > 0) part.restart();
                    return head.status != partial || continues;
                  },
                  [&](std::string_view piece) {
                    if (part.size() + piece.size() > file.size)
                      return false;  // longer than announced
                    part.append(piece);
                    tell();
                    return true;
                  }};
  return fetch(url, ask, &sink).status;
}

void bring(const PullOptions& options, const Url& url, const HubFile& file, const fs::path& target,
           const std::function<void(std::uint64_t)>& tell) {
  Incomplete part(target.string() + ".incomplete", file);
  auto wait = options.first_wait;
  constexpr int ok = 200, partial = 206;
  int left = options.attempts;
  std::string why = "it never came whole";
  for (bool damaged = false; left > 0;) {
    if (part.size() == file.size) {
      if (part.finish(target)) return;
      if (std::exchange(damaged, true))
        throw core::Error(core::Code::corrupt, "its hash is not the one that the hub announced")
            .in(file.name);
    }
    const std::uint64_t before = part.size();
    try {
      const int status = ask_for_rest(options, url, file, part, [&] { tell(part.size()); });
      if (status != ok && status != partial && !passing(status))
        refused(options, status, file.name);
      why = fmt::format("the hub answered with status {}", status);
    } catch (const core::Error& error) {
      if (error.code() != core::Code::io || error.argument() == file.name) throw;
      why = error.what();
    }
    if (part.size() == file.size) continue;
    if (part.size() > before) left = options.attempts, wait = options.first_wait;
    if (--left > 0) std::this_thread::sleep_for(wait);
    wait = std::min(wait * 2, std::chrono::milliseconds(30'000));
  }
  throw core::Error(core::Code::io, fmt::format("gave up: {}", why))
      .in(file.name)
      .hint("the same command goes on from here");
}

// Let the model appear.
void link_file(const fs::path& snapshot, const fs::path& blobs, const HubFile& file) {
  const fs::path link = snapshot / file.name;
  fs::create_directories(link.parent_path());
  const fs::path to = fs::relative(blobs / file.hash, link.parent_path());
  std::error_code ignored;
  if (fs::is_symlink(link, ignored) && fs::read_symlink(link, ignored) == to) return;
  const fs::path made = link.string() + ".new";
  fs::remove(made, ignored);
  fs::create_symlink(to, made);
  fs::rename(made, link);
}

void check_repository(const std::string& name) {
  const std::size_t slash = name.find('/');
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == '/';
  });
  if (!plain || slash == 0 || slash == std::string::npos || slash + 1 == name.size() ||
      name.find('/', slash + 1) != std::string::npos || name.find("..") != std::string::npos)
    throw core::Error(core::Code::invalid_argument, "a repository is named ORG/NAME").in(name);
}

void check_revision(const std::string& name) {
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || !plain || name.find("..") != std::string::npos)
    throw core::Error(core::Code::invalid_argument, "a revision is a branch, a tag or a commit")
        .in(name);
}

std::string percent_encoded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~' || c == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

}  // namespace

// Ask, bring, link.
fs::path pull(const PullOptions& options) {
  check_repository(options.repository);
  check_revision(options.revision);
  const auto at = [&](const std::string& path) {
    Url url = options.endpoint;
    while (url.target.ends_with('/')) url.target.pop_back();
    url.target += path;
    return url;
  };
  const Url listing_url = at(
      fmt::format("/api/models/{}/revision/{}?blobs=true", options.repository, options.revision));
  const Fetched listed = listing_of(options, listing_url);
  constexpr int ok = 200;
  if (listed.status != ok) refused(options, listed.status, listing_url.text());
  const HubListing listing = parse_listing(listed.body);
  std::vector<HubFile> files = choose_files(listing, options.patterns);
  std::ranges::stable_sort(files, {}, [](const HubFile& f) { return f.name == "config.json"; });

  std::string folder = "models--" + options.repository;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path root = options.cache / folder, blobs = root / "blobs";
  fs::create_directories(blobs);
  std::uint64_t all = 0, done = 0, missing = 0;
  for (const HubFile& file : files) {
    all += file.size;
    if (!fs::exists(blobs / file.hash)) missing += file.size;
    std::error_code none;
    const auto here = fs::file_size(blobs / (file.hash + ".incomplete"), none);
    if (!none) missing -= std::min<std::uint64_t>(missing, here);
  }
  if (missing > fs::space(blobs).available)
    throw core::Error(
        core::Code::resource_exhausted,
        fmt::format("{} bytes are to come, {} are free", missing, fs::space(blobs).available))
        .in(blobs.string());
  for (const HubFile& file : files) {
    if (!fs::exists(blobs / file.hash))
      bring(options,
            at(fmt::format("/{}/resolve/{}/{}", options.repository, listing.commit,
                           percent_encoded(file.name))),
            file, blobs / file.hash, [&](std::uint64_t part) {
              if (options.progress) options.progress(done + part, all, file.name);
            });
    done += file.size;
    if (options.progress) options.progress(done, all, file.name);
  }
  fs::path snapshot = root / "snapshots" / listing.commit;
  for (const HubFile& file : files) link_file(snapshot, blobs, file);
  fs::create_directories(root / "refs");
  core::write_file_atomic(root / "refs" / options.revision, listing.commit);
  return snapshot;
}

}  // namespace rose::serve
