// Files of trajectories.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rose/rlhf/trajectory.h"

namespace rose::rlhf {

/// The two forms on disk.
enum class Form : std::uint8_t { json_lines, binary };

/// Binary for a path that ends in .bin, else JSON lines.
Form form_of(const std::filesystem::path& path);

/// Writes each trajectory as it comes, so that what was written survives the writer.
class TrajectoryWriter {
 public:
  /// Replaces the file. Throws io.
  TrajectoryWriter(const std::filesystem::path& path, Form form);
  TrajectoryWriter(const TrajectoryWriter&) = delete;
  TrajectoryWriter& operator=(const TrajectoryWriter&) = delete;
  ~TrajectoryWriter();  ///< without finish(): the file says that it is not complete

  /// Throws corrupt for a record that does not validate, io when the disk is full.
  void write(const Trajectory& t, std::int64_t newest = any_version);
  void finish();  ///< writes the count; nothing may follow

 private:
  struct File;
  void put(const std::string& bytes);
  std::unique_ptr<File> file_;
  Form form_;
  std::uint64_t count_ = 0;
};

/// What a reader found before the first damage.
struct TrajectoryFile {
  std::vector<Trajectory> trajectories;
  std::string damage;  ///< empty, or what stopped the reader after these
};

/// All that is readable from the front; the form is recognised by the first bytes.
/// Throws not_found or io, and corrupt for a file that is of neither form.
TrajectoryFile salvage_trajectories(const std::filesystem::path& path);
/// As above, and damage is an error that says how many trajectories stand before it.
std::vector<Trajectory> read_trajectories(const std::filesystem::path& path);

}  // namespace rose::rlhf
