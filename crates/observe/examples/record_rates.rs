//! Measures the store of rows: `cargo run --release -p penstock-observe --example record_rates -- DIR ROWS`.

use penstock_model::TimeWindow;
use penstock_model::observation::{Attempt, Observation, Operation, Outcome, Text, View};
use penstock_model::{Activity, Bytes, Timestamp, UserName, VoName};
use penstock_observe::importing::{InvalidLine, LineFormat, LineImport, SourceHints};
use penstock_observe::records::parquet::ParquetWriter;
use penstock_observe::store::{Reader, Store};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

const BEGIN: i64 = 1_795_219_200_000;
const DAY_MILLISECONDS: i64 = 86_400_000;
const PARQUET_ROWS: u64 = 500_000;
const LIVE_ROWS: u64 = 200_000;
const LIVE_FLUSH_ROWS: u64 = 2_000;
const IMPORTED_ROWS: u64 = 200_000;

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

/// A complete message with all keys that FTS3 sends.
fn message(line: u64) -> String {
    let names = "src_srm_v dest_srm_v src_site_name dst_site_name buf_size tcp_buf_size block_size scitag time_srm_prep_st \
        time_srm_prep_end time_srm_fin_st time_srm_fin_end srm_preparation_time srm_finalization_time srm_overhead_time \
        srm_overhead_percentage srm_space_token_src srm_space_token_dst retry_max job_m_replica job_multihop \
        transfer_lasthop is_archiving job_state ipv6 eviction_code cleanup_code auth_method overwrite_on_disk_flag \
        overwrite_on_disk_deletion_code timestamp_chk_src_st timestamp_chk_src_ended timestamp_checksum_src_diff \
        timestamp_checksum_dest_st timestamp_checksum_dest_ended timestamp_checksum_dst_diff t_timeout chk_timeout \
        channel_type t_channel transfer_type tr_error_category protocol_translation";
    let others: String = names
        .split_whitespace()
        .map(|name| format!(",\"{name}\":0"))
        .collect();
    let at = BEGIN + line as i64;
    format!(
        "{{\"tr_id\":\"2026-11-21-0619__a.example.org__b.example.org__{line}__0192d3a4-77aa-7bbb-8ccc-0123456789ab\",\
         \"job_id\":\"0192d3a4-77aa-7bbb-8ccc-{line:012x}\",\"file_id\":{line},\"endpnt\":\"fts.example.org\",\"vo\":\"atlas\",\
         \"src_url\":\"https://a.example.org:8443/data/run/{line}\",\"dst_url\":\"https://b.example.org:8443/data/run/{line}\",\
         \"src_se\":\"https://a.example.org\",\"dst_se\":\"https://b.example.org\",\"src_hostname\":\"a.example.org\",\
         \"t_final_transfer_state\":\"Ok\",\"t_error_code\":0,\"tr_bt_transfered\":1000000000,\"f_size\":1000000000,\
         \"tr_timestamp_start\":{},\"tr_timestamp_complete\":{at},\"timestamp_tr_st\":{},\"timestamp_tr_comp\":{at},\
         \"transfer_time\":18000,\"operation_time\":20000,\"throughput\":55555555.5,\"nstreams\":1,\"retry\":0,\
         \"user_dn\":\"/DC=ch/DC=cern/CN=robot\",\"activity\":\"T0 Export\",\"ipver\":\"ipv6\",\
         \"file_metadata\":{{\"request_id\":\"r{line}\"}},\"job_metadata\":{{\"issuer\":\"rucio\"}}{others}}}\n",
        at - 20_000,
        at - 18_000,
    )
}

/// From the text of messages to durable rows.
fn import(directory: &Path) -> Result<(), Box<dyn Error>> {
    let text: String = (0..IMPORTED_ROWS).map(message).collect();
    let mut store = Store::open(&directory.join("import"))?;
    let told = SourceHints::default();
    let began = Instant::now();
    let mut lines = LineImport::new(LineFormat::Fts.parser(&told), "fts:messages".into(), &told);
    let (mut rows, mut failed) = (0, None);
    let mut take = |row: Result<Observation, InvalidLine>| match row {
        Ok(row) => {
            rows += 1;
            failed = failed.take().or(store.append(&row).err());
        }
        Err(why) => println!("{why}"),
    };
    for chunk in text.as_bytes().chunks(1 << 20) {
        lines.feed(chunk, &mut take);
    }
    lines.finish(&mut take);
    store.flush()?;
    rate("import of FTS messages", rows, began.elapsed());
    Ok(())
}

fn rate(what: &str, rows: u64, spent: Duration) {
    println!(
        "{what}: {rows} rows in {spent:.2?}, {:.0} rows/s",
        rows as f64 / spent.as_secs_f64()
    );
}

/// Long because each measurement is one step, and all use one directory.
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

    import(directory)?;

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
    reader.each(TimeWindow::ALL, &columns, |row: &Attempt| {
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
    let window = TimeWindow {
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
