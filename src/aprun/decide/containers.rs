//! What a user of a container program is told: some take a PE out of its application, and others leave out by what it
//! finds the other PEs. (psched sees nothing of either: to it, the PE is the program that waits for the container.)

/// What is to be said of a command, if it is a container program that was not given what it needs. `several`: it is run
/// for several PEs.
///
/// ```
/// # use psched_pure::aprun::decide::containers::advice;
/// let of = |line: &str| {
///     let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
///     advice(&words, true)
/// };
/// assert!(of("podman run image ./a.out").is_some_and(|text| text.contains("--cgroups split")));
/// assert_eq!(of("podman run --cgroups split --env-host image ./a.out"), None);
/// assert_eq!(of("podman ps"), None);
/// ```
pub fn advice(command: &[Vec<u8>], several: bool) -> Option<String> {
    let (name, words) = command.split_first()?;
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let mut commands = words.iter().filter(|word| !word.starts_with(b"-"));
    let command = commands.next().filter(|word| *word != b"container").or_else(|| commands.next());
    if command.is_none_or(|command| command != b"run") {
        return None;
    }
    let has = |option: &str| words.iter().any(|word| word == option.as_bytes());
    // (With either the container's processes stay below the PE's control group, or in it.)
    let stays = |groups: &str| {
        has(&format!("--cgroups={groups}"))
            || words.windows(2).any(|two| two[0] == b"--cgroups" && two[1] == groups.as_bytes())
    };
    let stays = stays("split") || stays("disabled");
    match name {
        b"docker" | b"nerdctl" => {
            let name = String::from_utf8_lossy(name);
            Some(format!(
                "{name} runs its container outside of the application: it takes no turns, and goes on when the \
                 application has ended; use apptainer, podman or bwrap (aprun(1), Containers)"
            ))
        }
        b"podman" => {
            let out = (!stays).then_some(
                "--cgroups split, without which the container leaves the application and runs on while others \
                 have the turn",
            );
            let alone = (several && !has("--env-host")).then_some(
                "--env-host, without which each PE of an MPI program is a world of its own",
            );
            let lacks: Vec<&str> = out.into_iter().chain(alone).collect();
            (!lacks.is_empty())
                .then(|| format!("podman lacks {} (aprun(1), Containers)", lacks.join("; and ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str, several: bool) -> String {
        let words: Vec<_> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        advice(&words, several).unwrap_or_default()
    }

    #[test]
    fn what_a_container_program_lacks_is_said() {
        let both = of("/usr/bin/podman run image a.out", true);
        assert!(both.contains("--cgroups split") && both.contains("--env-host"), "{both}");
        let alone = of("podman run --cgroups=split image a.out", true);
        assert!(!alone.contains("--cgroups") && alone.contains("--env-host"), "{alone}");
        assert_eq!(of("podman run --cgroups=split image a.out", false), "");
        assert!(of("docker run image a.out", false).starts_with("docker runs its container"));
        assert_eq!(of("podman run --cgroups disabled image a.out", false), "");
        assert_ne!(of("podman container run --cgroups enabled --env-host image exec", true), "");
        for line in [
            "docker ps",
            "podman ps --filter x run",
            "bwrap --bind / / a.out",
            "a.out run",
            "podman version",
        ] {
            assert_eq!(of(line, true), "", "{line}");
        }
    }
}
