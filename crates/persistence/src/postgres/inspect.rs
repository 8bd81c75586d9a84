//! What an operator wants to know of a database before a service uses it. Changes nothing.

use super::session::{Purpose, Sessions};
use super::{Database, DatabaseError, schema};

/// The oldest PostgreSQL that this is made for: older ones sort all that waits when a service starts.
const SERVER_OLDEST: i32 = 13;

/// What was found of a database that can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// The server's version, as it says it.
    pub server: String,
    /// The schema of its tables; `None` when there are none yet.
    pub schema: Option<u32>,
    /// What keeps a service from using it.
    pub errors: Vec<String>,
    /// What a person should look at.
    pub warnings: Vec<String>,
}

/// Looks at a database: whether it can be reached, its version, this user's rights, and the schema of its tables.
pub fn inspect(database: &Database) -> Result<DatabaseFacts, DatabaseError> {
    Sessions::start(database, Purpose::Cluster, 1)?.run(|session| {
        let mut open = session.begin()?;
        let row = open.query_opt(
            "SELECT current_setting('server_version'), current_setting('server_version_num')::integer / 10000,
                 current_setting('server_encoding'), current_setting('fsync') = 'off',
                 coalesce(has_schema_privilege(current_schema(), 'CREATE'), false), current_user::text",
            &[],
        )?;
        let row = row.expect("a question without a table has one answer");
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let (number, encoding, user): (i32, String, String) = (row.get(1), row.get(2), row.get(5));
        if number < SERVER_OLDEST {
            errors.push(format!("it is PostgreSQL {number}; {SERVER_OLDEST} or later is needed"));
        }
        if encoding != "UTF8" {
            errors.push(format!("its encoding is {encoding}; make one with ENCODING 'UTF8'"));
        }
        if row.get(3) {
            warnings.push("its fsync is off: a power failure can lose acknowledged data".to_owned());
        }
        if !row.get::<_, bool>(4) {
            let remedy = format!("GRANT CREATE, USAGE ON SCHEMA public TO \"{user}\"");
            errors.push(format!("{user} may not make tables in it: {remedy}"));
        }
        let found = schema::version(&mut open)?;
        if let Some(found) = found {
            if let Err(why) = schema::check(&open, found) {
                errors.push(why.to_string());
            }
            let sql = "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace
                       AND relkind IN ('r', 'p') AND NOT pg_has_role(relowner, 'USAGE')";
            let foreign = open.query_opt(sql, &[])?;
            let foreign = foreign.map_or(0, |row| row.get::<_, i64>(0));
            if foreign > 0 {
                errors.push(format!("{foreign} of its tables are not {user}'s: ALTER TABLE … OWNER TO \"{user}\""));
            }
        }
        open.commit()?;
        Ok(DatabaseFacts {
            server: row.get(0),
            schema: found.map(|found| found.version),
            errors,
            warnings,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::lab;

    #[test]
    fn what_keeps_a_service_from_using_a_database_is_told_with_its_remedy() {
        let database = lab::database();
        let found = inspect(&database).expect("reachable");
        assert_eq!((found.schema, found.errors), (None, Vec::new()));
        assert_eq!(found.warnings.len(), 1, "the test's has no fsync");
        lab::execute(&database, "CREATE ROLE stranger LOGIN");
        let told = inspect(&lab::as_user(&database, "stranger"))
            .expect("reachable")
            .errors;
        assert!(told[0].contains("GRANT CREATE"), "{told:?}");

        Sessions::start(&database, Purpose::Write, 1)
            .expect("starts")
            .run(schema::migrate)
            .expect("made");
        assert_eq!(
            inspect(&database).expect("reachable").schema,
            Some(schema::SCHEMA_VERSION)
        );
        let newer = "UPDATE penstock_schema SET version = 99, usable_from = 98";
        lab::execute(&database, newer);
        let told = inspect(&database).expect("reachable").errors;
        assert!(told[0].contains("upgrade"), "{told:?}");
    }

    #[test]
    fn a_schema_may_be_one_newer_if_it_says_that_this_version_can_use_it() {
        let database = lab::database();
        let migrate = || {
            Sessions::start(&database, Purpose::Write, 1)
                .expect("starts")
                .run(schema::migrate)
        };
        migrate().expect("made");
        let known = schema::SCHEMA_VERSION;
        for (version, usable_from, fits) in [
            (known + 1, known, true),
            (known + 1, known + 1, false),
            (known + 2, known, false),
        ] {
            lab::execute(
                &database,
                &format!(
                    "UPDATE penstock_schema SET version = {version}, usable_from = {usable_from}"
                ),
            );
            let migrated = migrate();
            assert_eq!(
                migrated.is_ok(),
                fits,
                "{version} from {usable_from}: {migrated:?}"
            );
            assert_eq!(
                lab::number(&database, "SELECT version::bigint FROM penstock_schema"),
                i64::from(version)
            );
        }
    }
}
