# Events that cannot be.
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
    events = [
      { name = "fine", from = "2026-11-27T18:00:00Z", to = "2026-11-28T01:00:00+01:00", uplift = 1.8 },
      { name = "backwards", from = "2026-11-27T18:00:00Z", to = "2026-11-26T18:00:00Z", uplift = 1.8 },
      { name = "no zone", from = "2026-11-27 18:00", to = "2026-11-28T00:00:00Z", uplift = 1.8 },
      { name = "percent", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = 180 },
      { name = "no uplift", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z" },
      { name = "none", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = 0 },
      { name = "misspelt", from = "2026-11-27T18:00:00Z", untl = "2026-11-28T00:00:00Z", uplift = 2 },
      { name = "", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = 2 },
      { name = "words", from = "2026-11-27T18:00:00Z", to = "2026-11-28T00:00:00Z", uplift = "much" },
      { name = "much", from = "2026-02-30T00:00:00Z", to = "tomorrow", uplft = 180, uplift = -1 },
      "2026-11-27",
      null,
    ]
  }
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
