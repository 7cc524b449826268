// Who keeps books about the steps of a timeline (episodes, priorities), and is told of every change under its mutex.
#pragma once

#include <cstddef>
#include <cstdint>

namespace relive {

class Observer {
  public:
    virtual ~Observer() = default;

    // A step is held now, and that which was `rows` numbers earlier is not.
    virtual void appended(std::size_t lane, std::int64_t number) = 0;
    // The stream was cut after the newest step of a lane.
    virtual void cut(std::size_t lane) = 0;
    // A lane holds nothing any more; its next step has the number `head`.
    virtual void emptied(std::size_t lane, std::int64_t head) = 0;
    // Anything may have changed.
    virtual void renewed() = 0;
    // The end of one call that changed something.
    virtual void settled() {}
};

}  // namespace relive
