// Runs the transcripts in golden/: small books, the commands run on them, and all that they print.
//
//   == file PATH       writes a file; `== bytes PATH` reads \n \r \t \xHH escapes and adds no line end
//   == link PATH TO    makes a symbolic link
//   == remove PATH     removes a file or folder
//   == show PATH       what follows is the file's contents
//   == run ARGUMENTS   what follows is what `tangle` prints, and its exit code
//
// `ROSE_UPDATE_GOLDEN=1` rewrites what follows `show` and `run` by what happens now.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

std::string from_environment(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

const fs::path root = from_environment("ROSE_SOURCE", ".");
const fs::path tool = fs::absolute(from_environment("ROSE_TANGLE", "build/bin/tangle"));

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "(no such file)\n";
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

struct Step {
  std::string verb, argument, body;
};

struct Transcript {
  std::string opening;
  std::vector<Step> steps;
};

Transcript parse(const std::string& text) {
  Transcript out;
  std::istringstream in(text);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with("== ")) {
      (out.steps.empty() ? out.opening : out.steps.back().body) += line + "\n";
      continue;
    }
    const std::size_t space = std::min(line.find(' ', 3), line.size());
    out.steps.push_back(
        {line.substr(3, space - 3), space < line.size() ? line.substr(space + 1) : "", ""});
  }
  return out;
}

std::string print(const Transcript& transcript) {
  std::string out = transcript.opening;
  for (const Step& step : transcript.steps) {
    out +=
        "== " + step.verb + (step.argument.empty() ? "" : " " + step.argument) + "\n" + step.body;
  }
  return out;
}

std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') continue;
    if (text[i] != '\\') {
      out += text[i];
    } else if (text[++i] == 'x') {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i] == 't' ? '\t' : text[i];
    }
  }
  return out;
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string run_tool(const fs::path& folder, const std::string& arguments) {
  const std::string command =
      "cd '" + folder.string() + "' && '" + tool.string() + "' " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string out;
  char buffer[4096];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, pipe))
    out.append(buffer, got);
  const int status = ::pclose(pipe);
  return out + "[exit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + "]\n";
}

/// The same text wherever the temporary folder is.
std::string placeless(std::string text, const fs::path& folder) {
  const std::string here = fs::canonical(folder).string();
  for (std::size_t at = text.find(here); at != std::string::npos; at = text.find(here))
    text.replace(at, here.size(), "HERE");
  return text;
}

/// Does one step in `folder`. Returns what the step's body should be.
std::string perform(const Step& step, const fs::path& folder) {
  const fs::path path = folder / step.argument;
  if (step.verb == "file") write(path, step.body);
  if (step.verb == "bytes") write(path, unescaped(step.body));
  if (step.verb == "remove") fs::remove_all(path);
  if (step.verb == "show") return placeless(read(path), folder);
  if (step.verb == "run") return placeless(run_tool(folder, step.argument), folder);
  if (step.verb == "link") {
    const std::size_t space = step.argument.find(' ');
    const fs::path link = folder / step.argument.substr(0, space);
    fs::create_directories(link.parent_path());
    fs::create_symlink(step.argument.substr(space + 1), link);
  }
  return step.body;
}

class Golden : public testing::TestWithParam<fs::path> {};

TEST_P(Golden, PrintsWhatItPrinted) {
  const std::string before = read(GetParam());
  Transcript transcript = parse(before);
  const fs::path folder = fs::path(testing::TempDir()) / ("golden-" + GetParam().stem().string() +
                                                          "-" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  bool ran = false;
  for (Step& step : transcript.steps) {
    ran = ran || step.verb == "run";
    step.body = perform(step, folder);
  }
  fs::remove_all(folder);
  EXPECT_TRUE(ran) << "this transcript runs nothing";
  if (std::getenv("ROSE_UPDATE_GOLDEN")) write(GetParam(), print(transcript));
  EXPECT_EQ(print(transcript), before) << "in " << GetParam();
}

std::vector<fs::path> transcripts() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(root / "tests/tangle/golden")) {
    if (entry.path().extension() == ".txt") out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(Transcripts, Golden, testing::ValuesIn(transcripts()),
                         [](const auto& test) {
                           std::string name = test.param.stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
