package dev.tautline.tls;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.DiagnosticCollector;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class DocumentationTest {
    @Test
    void snippetsCompile(@TempDir Path folder) throws Exception {
        String text = Files.readString(Path.of("../../docs/java.md"))
                + Files.readString(Path.of("../../docs/languages.md"));
        List<JavaFileObject> sources = new ArrayList<>();
        Matcher snippet = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL).matcher(text);
        while (snippet.find()) {
            String code = snippet.group(1);
            Matcher name = Pattern.compile("class (\\w+)").matcher(code);
            assertTrue(name.find());
            sources.add(new SimpleJavaFileObject(URI.create("snippet:/" + name.group(1) + ".java"),
                    JavaFileObject.Kind.SOURCE) {
                @Override
                public CharSequence getCharContent(boolean ignoreErrors) {
                    return code;
                }
            });
        }
        assertEquals(4, sources.size());
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        DiagnosticCollector<JavaFileObject> told = new DiagnosticCollector<>();
        List<String> options = List.of("-d", folder.toString(), "-cp",
                System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")));
        assertTrue(compiler.getTask(null, null, told, options, null, sources).call(),
                told.getDiagnostics().toString());
    }
}
