//! Measures the store of rows: `cargo run --release -p penstock-observe --example record_rates -- DIR ROWS`.

use penstock_model::observation::{Attempt, Operation, Outcome, Text, View};
use penstock_model::{Activity, Bytes, Timestamp, UserName, VoName};
use penstock_observe::records::parquet::ParquetWriter;
use penstock_observe::store::{ReadWindow, Reader, Store};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const BEGIN: i64 = 1_795_219_200_000;
const DAY_MILLISECONDS: i64 = 86_400_000;
const PARQUET_ROWS: u64 = 500_000;
const LIVE_ROWS: u64 = 200_000;
const LIVE_FLUSH_ROWS: u64 = 2_000;

fn row(line: u64, at: i64) -> Attempt {
    let host = |number: u64| Some(format!("https://se{}.example.org", number % 150).into());
    Attempt {
        at: Timestamp(at),
        source: "fts:messages".into(),
        line,
        view: View::Vo,
        operation: Operation::Copy,
        job: Some(format!("0192d3a4-77aa-7bbb-8ccc-{:012x}", line / 20).into()),
        transfer: Some(line.to_string().into()),
        attempt_number: Some(1),
        source_host: host(line * 7),
        destination_host: host(line * 13 + 1),
        destination_path: Some(format!("/data/run{}/file{line}.root", line / 1000).into()),
        vo: Some(VoName::new(
            ["atlas", "cms", "lhcb", "alice"][line as usize % 4],
        )),
        activity: Some(Activity::new("T0 Export")),
        user: Some(UserName::new("/DC=ch/DC=cern/CN=robot")),
        bytes_moved: Some(Bytes(1_000_000_000 + line * 977 % 3_000_000_000)),
        file_bytes: Some(Bytes(1_000_000_000 + line * 977 % 3_000_000_000)),
        submitted: Some(Timestamp(at - 60_000)),
        started: Some(Timestamp(at - 20_000)),
        ended: Some(Timestamp(at)),
        network_us: Some(18_000_000),
        write_us: Some(2_000_000),
        outcome: Some(Outcome::Success),
        ..Attempt::default()
    }
}

fn rate(what: &str, rows: u64, spent: Duration) {
    println!(
        "{what}: {rows} rows in {spent:.2?}, {:.0} rows/s",
        rows as f64 / spent.as_secs_f64()
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let directory = words
        .next()
        .ok_or("name a directory that does not exist yet")?;
    let directory = Path::new(&directory);
    let rows: u64 = words.next().ok_or("say how many rows")?.parse()?;
    let step = |line: u64| BEGIN + (line as i64 * DAY_MILLISECONDS) / rows as i64;

    let began = Instant::now();
    let mut store = Store::open(&directory.join("bulk"))?;
    let mut making = Duration::ZERO;
    for line in 0..rows {
        let made = Instant::now();
        let row = row(line, step(line));
        making += made.elapsed();
        store.append_row(&row)?;
    }
    store.flush()?;
    rate(
        "bulk, one day",
        rows,
        began.elapsed().saturating_sub(making),
    );

    let began = Instant::now();
    let mut live = Store::open(&directory.join("live"))?;
    for line in 0..LIVE_ROWS {
        live.append_row(&row(line, step(line)))?;
        if line % LIVE_FLUSH_ROWS == 0 {
            live.flush()?;
        }
    }
    live.flush()?;
    rate("live, durable every 2000", LIVE_ROWS, began.elapsed());

    let began = Instant::now();
    let mut bytes: BTreeMap<(Text, Text), u64> = BTreeMap::new();
    let columns = [
        "source_host",
        "destination_host",
        "vo",
        "bytes_moved",
        "started",
        "outcome",
    ];
    let mut reader = Reader::open(&directory.join("bulk"))?;
    let mut count = 0;
    reader.each(ReadWindow::ALL, &columns, |row: &Attempt| {
        count += 1;
        if let (Some(source), Some(destination)) = (&row.source_host, &row.destination_host) {
            let link = (source.clone(), destination.clone());
            *bytes.entry(link).or_default() += row.bytes_moved.map_or(0, |moved| moved.0);
        }
    })?;
    println!("{} links", bytes.len());
    rate("report of one day, six columns", count, began.elapsed());

    let began = Instant::now();
    let file = std::fs::File::create(directory.join("rows.parquet"))?;
    let mut parquet = ParquetWriter::new(std::io::BufWriter::new(file))?;
    let mut reader = Reader::open(&directory.join("bulk"))?;
    let to = Timestamp(step(PARQUET_ROWS.min(rows)));
    let window = ReadWindow {
        from: Timestamp(BEGIN),
        to,
    };
    let mut failed = None;
    reader.each(window, &[], |row: &Attempt| {
        failed = failed.take().or(parquet.push(row).err());
    })?;
    parquet.finish()?;
    rate("export as Parquet", PARQUET_ROWS.min(rows), began.elapsed());
    for name in ["bulk", "live"] {
        let mut size = 0;
        for entry in std::fs::read_dir(directory.join(name))? {
            size += entry?.metadata()?.len();
        }
        println!("{name}: {size} bytes");
    }
    println!(
        "rows.parquet: {} bytes",
        std::fs::metadata(directory.join("rows.parquet"))?.len()
    );
    Ok(())
}
