# Brokers, topics and credentials.
job "ctr" {
  stream "kafka" {
    brokers     = ["localhost", "kafka:90921", "kafka-1:9092"]
    topic       = "clicks/all"
    start       = "-10min"
    on_lost     = "ignore"
    dead_letter = ".."
    tls {
      ca_file  = "nowhere.pem"
      key_file = "stream.hcl"
    }
    sasl {
      mechanism = "scram-sha256"
      username  = ""
      password  = "hunter2"
      pasword   = "hunter2"
    }
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
  checkpoint {
    dir = "cp"
  }
  backend "local" {
  }
}
