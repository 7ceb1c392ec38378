import { IconCode } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useSources } from '~/panels/sources/queries'
import { useSourcesState } from '~/panels/sources/sourcesState'
import { useView } from '~/state/store'
import classes from './findings.module.css'
import { useSelectNamed } from './queries'
import { findingsTexts } from './texts'
import { namesIn, sourceOf } from './where'

const KINDS = ['line', 'operator', 'module', 'parameter', 'optimizer', 'rank'] as const
/** Names that are listed of one kind. */
const MOST_NAMES = 6

/** Where a finding is: parameters, modules and lines are links. */
export function Location({ where }: { where: Record<string, string> }) {
  const { t } = useTranslation(findingsTexts)
  const kinds = KINDS.filter((kind) => where[kind])
  if (kinds.length === 0) return null
  return (
    <dl className={classes['location']} data-testid="finding-location">
      {kinds.map((kind) => {
        const text = where[kind] ?? ''
        return (
          <div key={kind}>
            <dt>{t(`where.${kind}`)}</dt>
            <dd>
              {kind === 'line' ? (
                <LineLink position={text} />
              ) : kind === 'module' || kind === 'parameter' ? (
                <NodeNames listed={text} kind={kind} />
              ) : (
                <span className="mono">{text}</span>
              )}
            </dd>
          </div>
        )
      })}
    </dl>
  )
}

function NodeNames({ listed, kind }: { listed: string; kind: 'parameter' | 'module' }) {
  const { t } = useTranslation(findingsTexts)
  const selectNamed = useSelectNamed()
  const { names, total } = namesIn(listed)
  const shown = names.slice(0, MOST_NAMES)
  return (
    <>
      {shown.map((name) => (
        <button
          key={name}
          type="button"
          className={classes['link']}
          title={t('showNode', { name })}
          onClick={() => selectNamed(name, kind)}
          data-testid="finding-node"
        >
          <span>{name}</span>
        </button>
      ))}
      {total > shown.length && (
        <span className={classes['quiet']}>{t('others', { count: total - shown.length })}</span>
      )}
    </>
  )
}

/** A position such as `train.py:13`; a link if its file is known. */
function LineLink({ position }: { position: string }) {
  const { t } = useTranslation(findingsTexts)
  const run = useView((view) => view.run)
  const set = useView((view) => view.set)
  const { data } = useSources('')
  const showLine = useSourcesState((state) => state.showLine)
  const source = sourceOf(position, data?.files ?? [])
  if (!source) {
    return (
      <span className="mono" title={data && t('noSource')}>
        {position}
      </span>
    )
  }
  const code = source.file.lines.find(({ line }) => line === source.line)?.code
  return (
    <button
      type="button"
      className={classes['link']}
      title={`${t('showSource', { position })}\n${source.file.file}`}
      onClick={() => {
        showLine(run, source.file, source.line)
        set({ left: 'sources' })
      }}
      data-testid="finding-line"
    >
      <IconCode size={14} aria-hidden />
      <span>{position}</span>
      {code && <code>{code}</code>}
    </button>
  )
}
