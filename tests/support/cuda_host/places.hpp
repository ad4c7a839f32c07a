// The barriers of a kernel's source: how often each was met, and whether it is left out.
#pragma once

#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace cuda_host {

struct Site {
  const char* file;
  int line;
  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || !strcmp(file, other.file));
  }
  std::string text() const {
    const char* name = strrchr(file, '/');
    return std::string(name ? name + 1 : file) + ":" + std::to_string(line);
  }
};

struct Place;

struct Places {
  std::mutex lock;  // threads may come to several for the first time at once
  std::vector<Place*> all;
  std::string removed;  // "file:line"
};

inline Places& places() {
  static Places state;
  return state;
}

// One for each instance of a template, so that some share a line.
struct Place {
  Place(const char* file, int line) : site{file, line} {
    std::lock_guard<std::mutex> guard(places().lock);
    places().all.push_back(this);
    is_removed = site.text() == places().removed;
  }
  Site site;
  bool is_removed;
  long long met = 0;
};

inline void remove_barrier(const char* site) {
  places().removed = site;
  for (Place* place : places().all) place->is_removed = place->site.text() == places().removed;
}

inline std::map<std::string, long long> barriers_met() {
  std::map<std::string, long long> counts;
  for (const Place* place : places().all) counts[place->site.text()] += place->met;
  return counts;
}

}  // namespace cuda_host
