//! How a file moves when an end of its transfer is reached by gfal2.

use penstock_model::{Access, Errno, FileUrl};

/// Who moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GfalWay {
    /// The ends among themselves, ordered by a plug-in of gfal2.
    ByPlugin,
    /// A gfal process, which reads from one end and writes to the other.
    ThroughChild,
    /// This service, which speaks HTTP with one end itself and has a gfal process read or write at the other.
    ThroughService,
}

/// The way between two ends of which at least one needs gfal2.
///
/// gfal2's own HTTP is not used: it keeps whole uploads in a local file, follows its own rules of trust, and cannot
/// refuse to replace a file that has appeared meanwhile.
pub fn gfal_way(source: &FileUrl, destination: &FileUrl) -> GfalWay {
    if source.access() != Access::Gfal || destination.access() != Access::Gfal {
        return GfalWay::ThroughService;
    }
    let family = |url: &FileUrl| match &*url.scheme() {
        "gsiftp" => Family::GridFtp,
        "srm" => Family::Srm,
        "sftp" => Family::Sftp,
        _ => Family::XRootD,
    };
    match (family(source), family(destination)) {
        (Family::GridFtp, Family::GridFtp) | (Family::XRootD, Family::XRootD) => GfalWay::ByPlugin,
        // An SRM must be asked where to read or write, and told when that is done; its plug-in does so.
        (Family::Srm, _) | (_, Family::Srm) => GfalWay::ByPlugin,
        (Family::Sftp, _) | (_, Family::Sftp) => GfalWay::ThroughChild,
        (Family::GridFtp, Family::XRootD) | (Family::XRootD, Family::GridFtp) => {
            GfalWay::ThroughChild
        }
    }
}

enum Family {
    GridFtp,
    XRootD,
    Srm,
    Sftp,
}

/// Whether a copy that a plug-in could not do may go through a process instead: when no byte has moved, both ends speak
/// XRootD, where such copies need an agreement between the servers that not all have, and nothing tells that another
/// way must fail as well.
pub fn may_stream_instead(
    source: &FileUrl,
    destination: &FileUrl,
    errno: Errno,
    moved: u64,
) -> bool {
    let is_xrootd = |url: &FileUrl| matches!(&*url.scheme(), "root" | "roots" | "xroot" | "xroots");
    let is_final = [
        Errno::ENOENT,
        Errno::EEXIST,
        Errno::EISDIR,
        Errno::ENOSPC,
        Errno::EROFS,
        Errno::ECANCELED,
    ]
    .contains(&errno);
    moved == 0 && is_xrootd(source) && is_xrootd(destination) && !is_final
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> FileUrl {
        FileUrl::parse(text).expect("valid")
    }

    #[test]
    fn ends_of_one_family_copy_among_themselves() {
        let check = |source: &str, destination: &str, way| {
            assert_eq!(
                gfal_way(&url(source), &url(destination)),
                way,
                "{source} {destination}"
            );
        };
        check("gsiftp://a/f", "gsiftp://b/f", GfalWay::ByPlugin);
        check("root://a//f", "xroots://b//f", GfalWay::ByPlugin);
        check("srm://a/f", "gsiftp://b/f", GfalWay::ByPlugin);
        check("srm://a/f", "davs://b/f", GfalWay::ThroughService);
        check("gsiftp://a/f", "root://b//f", GfalWay::ThroughChild);
        check("sftp://a/f", "sftp://b/f", GfalWay::ThroughChild);
        check("davs://a/f", "root://b//f", GfalWay::ThroughService);
        check("gsiftp://a/f", "https://b/f", GfalWay::ThroughService);
    }

    #[test]
    fn only_xrootd_falls_back_and_only_before_the_first_byte() {
        let (a, b) = (url("root://a//f"), url("root://b//f"));
        assert!(may_stream_instead(&a, &b, Errno::ETIMEDOUT, 0));
        assert!(!may_stream_instead(&a, &b, Errno::ETIMEDOUT, 1));
        assert!(!may_stream_instead(&a, &b, Errno::ENOENT, 0));
        let c = url("gsiftp://c/f");
        assert!(!may_stream_instead(&c, &c, Errno::EIO, 0));
    }
}
