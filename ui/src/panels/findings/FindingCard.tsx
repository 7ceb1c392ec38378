import { Button } from '@mantine/core'
import { IconBulb, IconChartLine, IconClockHour4 } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import type { FindingRecord } from '~/api/types'
import { useGoToStep } from '~/panels/overview/useGoTo'
import { CopyButton } from '~/parts/CopyButton'
import { choiceOf, type Choice } from './facts'
import { Certainty } from './Certainty'
import classes from './findings.module.css'
import { Location } from './Location'
import { findingsTexts } from './texts'
import { useFindingWords } from './words'

/** A finding: what is wrong, where, since when, by what evidence, what to do, and what follows from it. */
export function FindingCard(props: { finding: FindingRecord; showFacts: (facts: Choice) => void }) {
  const { finding, showFacts } = props
  const { t } = useTranslation(findingsTexts)
  const { data: session } = useSession()
  const goToStep = useGoToStep()
  const words = useFindingWords()(finding)
  const { rule, step } = finding
  const canGo = session?.capabilities.can_go_to_step === true && session.step !== step
  const facts = choiceOf(finding)
  const explain = `tensight explain ${rule}`
  return (
    <article
      className={classes['card']}
      data-certainty={finding.certainty}
      data-testid="finding"
      data-rule={rule}
    >
      <h3>{words.title}</h3>
      <div className={classes['head']}>
        <Certainty certainty={finding.certainty} />
        <span className={classes['quiet']}>{t('since', { step })}</span>
        <span className={classes['rule']}>
          {t('rule')} <code title={explain}>{rule}</code>
          <CopyButton text={explain} label={t('copyExplain', { command: explain })} />
        </span>
      </div>
      <Location where={finding.where ?? {}} />
      {words.evidence.map((sentence) => (
        <p key={sentence} data-testid="finding-evidence">
          {sentence}
        </p>
      ))}
      {words.advice && (
        <p className={classes['advice']} data-testid="finding-advice">
          <IconBulb size={15} role="img" aria-label={t('advice')} />
          <span>{words.advice}</span>
        </p>
      )}
      {words.explains.length > 0 && (
        <details data-testid="finding-follows">
          <summary>{t('follows', { count: words.explains.length })}</summary>
          <ul>
            {words.explains.map((sentence) => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ul>
        </details>
      )}
      <div className={classes['buttons']}>
        {canGo && (
          <Button
            size="compact-xs"
            variant="default"
            leftSection={<IconClockHour4 size={14} />}
            onClick={() => goToStep(step)}
            data-testid="finding-step"
          >
            {t('goToStep', { step })}
          </Button>
        )}
        {facts && (
          <Button
            size="compact-xs"
            variant="default"
            leftSection={<IconChartLine size={14} />}
            onClick={() => showFacts(facts)}
            data-testid="finding-curve"
          >
            {t(`columns.${facts.column}`)}
          </Button>
        )}
      </div>
    </article>
  )
}
