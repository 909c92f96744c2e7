# Holidays that cannot be.
job "ctr" {
  stream "kafka" {
    brokers = ["localhost:9092"]
    topic   = "clicks"
  }
  features {
    label  = "click"
    sparse = ["user", "item"]
  }
  workers {
    max = 4
  }
  throughput {
    theta = [0.0002, 0, 0]
  }
  forecast {
    timezone = "Europe/Berlin"
    holidays = [
      "us", "de-by", "12-24..01-02", "2026-12-24",
      "atlantis",
      "xx",
      "25-12",
      "2026-12-31..2026-12-24",
      "absent.ics",
      "broken.ics",
      { name = "stocktaking", on = "06-31", uplift = 0.2 },
      { name = "bridge", on = "2026-05-15", like = "saturdy" },
      { name = "strike", on = "2026-05-18", uplft = 0.5, uplift = -1, learn = "no" },
      { name = "nowhere" },
      3,
    ]
    holidays_like = "someday"
    events = [
      { name = "on the clock", from = "2026-11-27T18:00", to = "2026-11-28 01:00", uplift = 0 },
      { name = "no such day", from = "2026-02-30", to = "2026-11-28", uplift = 1.8 },
      { name = "backwards", from = "2026-11-27T18:00", to = "2026-11-27T16:00Z", uplift = 1.8 },
    ]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
