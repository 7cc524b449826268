// Where the episodes of each lane begin and end, and which of their steps a window may start at. Kept step by step, so
// that nothing is ever scanned after a write; flags in the records stay the truth and are read anew on `renewed`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "observer.hpp"
#include "timeline.hpp"

namespace relive {

// Numbers in one run of memory, taken off at the front and put on at the back.
class Queue {
  public:
    std::size_t size() const noexcept { return items_.size() - first_; }
    bool empty() const noexcept { return size() == 0; }
    std::int64_t operator[](std::size_t i) const noexcept { return items_[first_ + i]; }
    std::int64_t back() const noexcept { return items_.back(); }
    const std::int64_t* begin() const noexcept { return items_.data() + first_; }
    const std::int64_t* end() const noexcept { return items_.data() + items_.size(); }
    void push(std::int64_t item) { items_.push_back(item); }
    void pop() {
        if (++first_ < 64 || 2 * first_ < items_.size()) return;
        items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(first_));
        first_ = 0;
    }
    void clear() noexcept {
        items_.clear();
        first_ = 0;
    }

  private:
    std::vector<std::int64_t> items_;
    std::size_t first_ = 0;
};

// Which steps are asked for: those of an episode at which a window of `length` may start, every `stride` of them; or end,
// counted so that within an episode the whole windows are the same either way.
struct StartRule {
    std::int64_t length = 1;
    std::int64_t stride = 1;
    bool padded = true;          // the window may be cut short by the end of its episode (looking back: its beginning)
    bool crossing = false;       // it may go on into the next one, and is cut short by the head of its lane alone
    bool finished_only = false;  // not of an episode that goes on
    bool looks_back = false;     // the window ends with the step; steps that are not held any more cut it short too

    // Where the steps of a lane that it names have no gap.
    bool is_run() const noexcept { return stride == 1 && (padded || length == 1); }
    // Every step held is one: no books are needed.
    bool is_all() const noexcept { return is_run() && !finished_only; }
    // How many held steps must come before one.
    std::int64_t needs_before() const noexcept { return looks_back && !padded ? length - 1 : 0; }
    friend bool operator==(const StartRule&, const StartRule&) = default;
};

class Episodes;

// The steps that one rule names, counted and numbered. In every lane they form a run of episodes, each with an
// arithmetic progression of starts: sums of their counts before each episode answer everything by bisection.
class Starts {
  public:
    Starts(const Episodes& episodes, const StartRule& rule);

    const StartRule& rule() const noexcept { return rule_; }
    bool is_start(std::size_t lane, std::int64_t number) const noexcept;
    // Of all held steps of a lane.
    std::int64_t count(std::size_t lane) const noexcept {
        if (rule_.is_run()) return std::max<std::int64_t>(run_end(lane) - oldest(lane), 0);
        return std::max<std::int64_t>(below(lane, limit(lane)) - below(lane, lower(lane)), 0);
    }
    // The k-th one of a lane, oldest first.
    std::int64_t at(std::size_t lane, std::int64_t k) const noexcept;
    // The held ones in [from, to), which lie in one episode.
    template <class Visit>
    void visit(std::size_t lane, std::int64_t from, std::int64_t to, const Visit& visit_one) const {
        for (std::int64_t n = std::max(from, oldest(lane)); n < std::min(to, limit(lane)); ++n) {
            if (is_start(lane, n)) visit_one(n);
        }
    }
    // How many episodes of a lane have one.
    std::int64_t episode_count(std::size_t lane) const noexcept;
    // The first start and how many there are of the k-th such episode.
    std::pair<std::int64_t, std::int64_t> episode_at(std::size_t lane, std::int64_t k) const noexcept;

  private:
    friend class Episodes;
    struct Books {
        Queue before;           // starts in all finished episodes before each one
        Queue episodes_before;  // episodes with any, the same
        std::int64_t total = 0;
        std::int64_t episodes_total = 0;
    };
    struct Range {
        std::int64_t first;
        std::int64_t count;
    };

    std::int64_t oldest(std::size_t lane) const noexcept;
    // No step below it is one, nor from the limit on.
    std::int64_t lower(std::size_t lane) const noexcept { return oldest(lane) + rule_.needs_before(); }
    std::int64_t limit(std::size_t lane) const noexcept;
    // Where the steps end that a rule without gaps names.
    std::int64_t run_end(std::size_t lane) const noexcept;
    // The first one of an episode that begins at `begin`, were all of it held.
    std::int64_t first_of(std::int64_t begin) const noexcept {
        if (!rule_.looks_back) return begin;
        const std::int64_t whole = rule_.length - 1;
        return begin + (rule_.padded || rule_.crossing ? whole % rule_.stride : whole);
    }
    // The end of the starts of an episode that ends at `end`.
    std::int64_t last_end(std::int64_t end) const noexcept {
        return rule_.padded || rule_.crossing || rule_.looks_back ? end : end - rule_.length + 1;
    }
    // How many there are from `first` on, where one is, below `end`.
    std::int64_t strides(std::int64_t first, std::int64_t end) const noexcept {
        return end > first ? (end - first + rule_.stride - 1) / rule_.stride : 0;
    }
    // Starts with a number below x, from where the books of the lane begin.
    std::int64_t below(std::size_t lane, std::int64_t x) const noexcept;
    // Held starts of episode i.
    Range range(std::size_t lane, std::size_t i) const noexcept;
    // Those between which every episode has all of its starts.
    std::size_t first_episode(std::size_t lane) const noexcept;
    std::size_t last_episode(std::size_t lane) const noexcept;

    void opened(std::size_t lane);
    void closed(std::size_t lane, std::int64_t start, std::int64_t end);
    void dropped(std::size_t lane);
    void emptied(std::size_t lane);

    const Episodes& episodes_;
    StartRule rule_;
    std::vector<Books> lanes_;
};

class Episodes final : public Observer {
  public:
    static constexpr std::size_t most_rules = 8;

    explicit Episodes(Timeline& timeline) : timeline_(timeline), lanes_(timeline.lanes().size()) {
        renewed();
        timeline_.attach(this);
    }
    ~Episodes() override { timeline_.detach(this); }
    Episodes(const Episodes&) = delete;
    Episodes& operator=(const Episodes&) = delete;

    const Timeline& timeline() const noexcept { return timeline_; }
    // The books of a rule, made at its first use; those not asked for longest are forgotten (`pinned` ones never).
    const Starts& starts(const StartRule& rule, bool pinned = false) {
        for (auto it = books_.begin(); it != books_.end(); ++it) {
            if (!(it->starts.rule() == rule)) continue;
            it->pinned = it->pinned || pinned;
            books_.splice(books_.begin(), books_, it);
            return books_.front().starts;
        }
        books_.emplace_front(*this, rule, pinned);
        read_into(books_.front().starts);
        if (books_.size() > most_rules) {
            for (auto it = std::prev(books_.end()); it != books_.begin(); --it) {
                if (it->pinned) continue;
                books_.erase(it);
                break;
            }
        }
        return books_.front().starts;
    }

    // Of a lane: the number at which each held episode begins, oldest first (the first may have lost its beginning).
    const Queue& begins(std::size_t lane) const noexcept { return lanes_[lane].begins; }
    bool is_finished(std::size_t lane, std::size_t i) const noexcept {
        return i + 1 < lanes_[lane].begins.size() || lanes_[lane].closed;
    }
    // One behind its last step.
    std::int64_t end(std::size_t lane, std::size_t i) const noexcept {
        const Queue& begins = lanes_[lane].begins;
        return i + 1 < begins.size() ? begins[i + 1] : lanes_[lane].head;
    }
    // The episode of a held step; the first one for an earlier number.
    std::size_t find(std::size_t lane, std::int64_t number) const noexcept {
        const Queue& begins = lanes_[lane].begins;
        const std::size_t size = begins.size();
        // Episodes are about as long as each other: look where the number would lie, then ever further around.
        const auto span = static_cast<double>(std::max<std::int64_t>(lanes_[lane].head - begins[0], 1));
        const double share = static_cast<double>(std::max<std::int64_t>(number - begins[0], 0)) / span;
        std::size_t low = std::min(static_cast<std::size_t>(share * static_cast<double>(size)), size - 1);
        std::size_t high = low + 1;
        for (std::size_t step = 1; low > 0 && begins[low] > number; step *= 2) {
            high = low;
            low = low > step ? low - step : 0;
        }
        for (std::size_t step = 1; high < size && begins[high] <= number; step *= 2) {
            low = high;
            high = std::min(high + step, size);
        }
        const auto after = std::upper_bound(begins.begin() + static_cast<std::ptrdiff_t>(low) + 1,
                                            begins.begin() + static_cast<std::ptrdiff_t>(high), number);
        return static_cast<std::size_t>(after - begins.begin()) - 1;
    }
    std::int64_t oldest(std::size_t lane) const noexcept { return timeline_.oldest(lane); }
    std::int64_t head(std::size_t lane) const noexcept { return lanes_[lane].head; }

    void appended(std::size_t lane, std::int64_t number) override {
        if (lanes_[lane].begins.empty()) open(lane, std::min(number, timeline_.lanes()[lane].begun));
        step(lane, number);
        drop_overwritten(lane);
    }
    void cut(std::size_t lane) override {
        if (!lanes_[lane].closed && !lanes_[lane].begins.empty()) close(lane);
    }
    void emptied(std::size_t lane, std::int64_t head) override {
        lanes_[lane].begins.clear();
        lanes_[lane].closed = true;
        lanes_[lane].head = head;
        for (Book& book : books_) book.starts.emptied(lane);
    }
    void renewed() override {
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
            const std::int64_t head = timeline_.lanes()[lane].head;
            emptied(lane, timeline_.oldest(lane));
            if (timeline_.lanes()[lane].count > 0) open(lane, timeline_.lanes()[lane].begun);
            for (std::int64_t n = timeline_.oldest(lane); n < head; ++n) step(lane, n);
            lanes_[lane].head = head;
        }
    }

  private:
    struct Lane {
        Queue begins;
        bool closed = true;  // the newest episode has ended
        std::int64_t head = 0;
    };
    struct Book {
        Book(const Episodes& episodes, const StartRule& rule, bool pin) : starts(episodes, rule), pinned(pin) {}
        Starts starts;
        bool pinned;
    };

    void step(std::size_t lane, std::int64_t number) {
        Lane& l = lanes_[lane];
        if (l.closed) open(lane, number);
        l.head = number + 1;
        if (timeline_.is_end(lane, timeline_.row_of(number))) close(lane);
    }
    void open(std::size_t lane, std::int64_t begin) {
        lanes_[lane].begins.push(begin);
        lanes_[lane].closed = false;
        for (Book& book : books_) book.starts.opened(lane);
    }
    void close(std::size_t lane) {
        lanes_[lane].closed = true;
        for (Book& book : books_) book.starts.closed(lane, lanes_[lane].begins.back(), lanes_[lane].head);
    }
    void drop_overwritten(std::size_t lane) {
        Queue& begins = lanes_[lane].begins;
        const std::int64_t oldest = lanes_[lane].head - static_cast<std::int64_t>(timeline_.layout().rows);
        while (begins.size() > 1 && begins[1] <= oldest) {
            begins.pop();
            for (Book& book : books_) book.starts.dropped(lane);
        }
    }
    void read_into(Starts& starts) const {
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
            const Queue& begins = lanes_[lane].begins;
            for (std::size_t i = 0; i < begins.size(); ++i) {
                starts.opened(lane);
                if (is_finished(lane, i)) starts.closed(lane, begins[i], end(lane, i));
            }
        }
    }

    Timeline& timeline_;
    std::vector<Lane> lanes_;
    std::list<Book> books_;
};

// Starts ----------------------------------------------------------------------------------------------------------

inline Starts::Starts(const Episodes& episodes, const StartRule& rule)
    : episodes_(episodes), rule_(rule), lanes_(episodes.timeline().lanes().size()) {}

inline void Starts::opened(std::size_t lane) {
    Books& books = lanes_[lane];
    books.before.push(books.total);
    books.episodes_before.push(books.episodes_total);
}

inline void Starts::closed(std::size_t lane, std::int64_t start, std::int64_t end) {
    const std::int64_t count = strides(first_of(start), last_end(end));
    lanes_[lane].total += count;
    lanes_[lane].episodes_total += count > 0 ? 1 : 0;
}

inline void Starts::dropped(std::size_t lane) {
    lanes_[lane].before.pop();
    lanes_[lane].episodes_before.pop();
}

inline void Starts::emptied(std::size_t lane) { lanes_[lane] = {}; }

inline std::int64_t Starts::oldest(std::size_t lane) const noexcept { return episodes_.oldest(lane); }

inline std::int64_t Starts::limit(std::size_t lane) const noexcept {
    const std::int64_t head = episodes_.head(lane);
    return rule_.crossing && !rule_.padded && !rule_.looks_back ? head - rule_.length + 1 : head;
}

inline std::int64_t Starts::run_end(std::size_t lane) const noexcept {
    const Queue& begins = episodes_.begins(lane);
    if (begins.empty()) return oldest(lane);
    const bool all = !rule_.finished_only || episodes_.is_finished(lane, begins.size() - 1);
    return all ? episodes_.head(lane) : begins.back();
}

inline std::int64_t Starts::below(std::size_t lane, std::int64_t x) const noexcept {
    const Queue& begins = episodes_.begins(lane);
    if (begins.empty() || x <= begins[0]) return begins.empty() ? 0 : lanes_[lane].before[0];
    const std::size_t i = episodes_.find(lane, x - 1);
    const std::int64_t before = lanes_[lane].before[i];
    if (rule_.finished_only && !episodes_.is_finished(lane, i)) return before;
    return before + strides(first_of(begins[i]), std::min(x, last_end(episodes_.end(lane, i))));
}

inline bool Starts::is_start(std::size_t lane, std::int64_t number) const noexcept {
    if (rule_.is_run()) return number >= oldest(lane) && number < run_end(lane);
    const Queue& begins = episodes_.begins(lane);
    if (begins.empty() || number < lower(lane) || number >= limit(lane)) return false;
    const std::size_t i = episodes_.find(lane, number);
    if (rule_.finished_only && !episodes_.is_finished(lane, i)) return false;
    const std::int64_t first = first_of(begins[i]);
    return number >= first && (number - first) % rule_.stride == 0 && number < last_end(episodes_.end(lane, i));
}

inline std::int64_t Starts::at(std::size_t lane, std::int64_t k) const noexcept {
    if (rule_.is_run()) return oldest(lane) + k;
    const Books& books = lanes_[lane];
    const std::int64_t wanted = below(lane, lower(lane)) + k;
    const auto after = std::upper_bound(books.before.begin(), books.before.end(), wanted);
    const auto i = static_cast<std::size_t>(after - books.before.begin()) - 1;
    return first_of(episodes_.begins(lane)[i]) + (wanted - books.before[i]) * rule_.stride;
}

inline std::size_t Starts::first_episode(std::size_t lane) const noexcept {
    if (!(rule_.crossing && rule_.needs_before() > 0)) return 0;
    return episodes_.find(lane, std::min(lower(lane), episodes_.head(lane) - 1));
}

inline std::size_t Starts::last_episode(std::size_t lane) const noexcept {
    const std::size_t size = episodes_.begins(lane).size();
    if (!(rule_.crossing && !rule_.padded && !rule_.looks_back)) return size - 1;
    return episodes_.find(lane, std::max(limit(lane) - 1, episodes_.begins(lane)[0]));
}

inline Starts::Range Starts::range(std::size_t lane, std::size_t i) const noexcept {
    const std::int64_t begin = episodes_.begins(lane)[i];
    if (rule_.finished_only && !episodes_.is_finished(lane, i)) return {begin, 0};
    const std::int64_t end = std::min(last_end(episodes_.end(lane, i)), limit(lane));
    std::int64_t first = first_of(begin);
    first += strides(first, lower(lane)) * rule_.stride;
    return {first, strides(first, end)};
}

// The first and the last one may have lost some; between them the books count.
inline std::int64_t Starts::episode_count(std::size_t lane) const noexcept {
    if (episodes_.begins(lane).empty()) return 0;
    const std::size_t start = first_episode(lane);
    const std::size_t last = last_episode(lane);
    std::int64_t count = range(lane, last).count > 0 ? 1 : 0;
    if (last == start) return count;
    count += range(lane, start).count > 0 ? 1 : 0;
    return count + lanes_[lane].episodes_before[last] - lanes_[lane].episodes_before[start + 1];
}

inline std::pair<std::int64_t, std::int64_t> Starts::episode_at(std::size_t lane, std::int64_t k) const noexcept {
    const std::size_t start = first_episode(lane);
    const std::size_t last = last_episode(lane);
    const Range first = range(lane, start);
    if (first.count > 0 && (k == 0 || last == start)) return {first.first, first.count};
    std::size_t i = last;
    if (last > start) {
        const Queue& before = lanes_[lane].episodes_before;
        const std::int64_t wanted = before[start + 1] + k - (first.count > 0 ? 1 : 0);
        const auto after = std::upper_bound(before.begin() + static_cast<std::ptrdiff_t>(start) + 1,
                                            before.begin() + static_cast<std::ptrdiff_t>(last) + 1, wanted);
        i = static_cast<std::size_t>(after - before.begin()) - 1;
    }
    const Range found = range(lane, i);
    return {found.first, found.count};
}

}  // namespace relive
